"""N2: how far are gradient descent, SGD and Adam from the gradient flow of the theory?"""

import math

from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.claims import claims
from largeprompt.studies.discrete.adam import adam
from largeprompt.studies.discrete.config import DiscreteConfig
from largeprompt.studies.discrete.descent import descent, stability
from largeprompt.studies.discrete.figures import FIGURES
from largeprompt.studies.discrete.rules import RULES
from largeprompt.studies.discrete.sgd import authors, batches
from largeprompt.studies.variables import labels

LABELS = {  # what the variables of the dataset are, and their units
    "predicted_gap": "predicted gap of gradient descent, over the step size",
    "gap": "largest gap of gradient descent to the flow",
    "stable_step": "predicted largest stable step at the end of the flow",
    "measured_stable_step": "largest stable step, measured",
    "*_error": "standard error, *",
    "stable_step_error": "half the width of the bracket around the largest stable step",
    "growth_beyond": "growth of a deviation at a step beyond the stable one",
    "memory_gap": "largest gap of Adam to the flow with memory",
    "adam_b": "read-out b of Adam along time",
    "memory_b": "read-out b of the flow with memory along time",
    "adam_gauge": "b² - ‖A‖² at the end of Adam",
    "memory_gauge": "b² - ‖A‖² at the end of the flow with memory",
    "flow_b": "read-out b at the end of gradient flow",
    "flow_gauge": "b² - ‖A‖² at the end of gradient flow",
    "sgd_spread": "squared spread of the parameters between runs of SGD",
    "predicted_spread": "predicted squared spread",
    "sgd_gap": "root mean squared gap of SGD to the flow",
    "predicted_sgd_gap": "predicted root mean squared gap of SGD to the flow",
    "paper_spread": "squared spread between runs of the authors' SGD",
    "paper_predicted": "predicted squared spread of the authors' SGD",
    "paper_law": "predicted root mean squared gap of the authors' SGD to the flow",
    "paper_size": "norm of the parameters along the flow",
    "step_size": "step size of gradient descent",
    "adam_step_size": "step size of Adam",
    "adam_time": "time of Adam: steps times step size",
    "batch_step_size": "step size of SGD",
    "batch_size": "prompts in a batch of SGD",
    "batch_runs": "runs of SGD",
    "paper_time": "time of the authors' training",
    "paper_step": "time of the authors' SGD: steps times step size",
}

STUDY = Study(
    name="discrete",
    title="Gradient descent, SGD and Adam against gradient flow",
    question="How far are discrete gradient descent, SGD and Adam from the gradient flow of the "
    "theory, and by which laws?",
    method="Each gap is predicted from the flow alone, before a step is taken: backward error "
    "analysis for descent, a Lyapunov equation for SGD, a flow with memory for Adam. Descent and "
    "Adam then run on the exact risk, SGD on drawn prompts, the authors' SGD over its first part.",
    config=DiscreteConfig,
    quick=DiscreteConfig(
        lengths=(30, math.inf),
        until=3.0,
        step_sizes=(0.2, 0.1, 0.05, 0.025),
        times=41,
        settled=300.0,
        sections=12,
        rounds=2,
        sgd_until=0.5,
        sgd_times=6,
        batches=((0.05, 16, 64), (0.05, 128, 64), (0.05, 256, 64), (0.025, 128, 64)),
        noise_prompts=2**11,
        adam_until=0.3,
        adam_step_sizes=(1e-2, 5e-3),
        paper_until=0.3,
        paper_steps=50,
        paper_runs=4,
        paper_prompts=2**9,
        paper_times=3,
    ),
    parts=[  # the longest first, so that workers end together
        Part("SGD", batches),
        Part("authors' SGD", authors),
        Part("descent", descent, lambda config: map(float, config.lengths), along("length")),
        Part("stability", stability, lambda config: map(float, config.lengths), along("length")),
        Part("Adam", adam),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("N2"),
    variables=labels(LABELS),
)
