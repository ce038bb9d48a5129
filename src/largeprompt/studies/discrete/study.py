"""N2: how far are gradient descent, SGD and Adam from the gradient flow that the theory speaks of?
Laws of the gap.
"""

import math

from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.claims import claims
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.discrete import descent, noise
from largeprompt.studies.discrete.config import DiscreteConfig
from largeprompt.studies.discrete.figures import FIGURES
from largeprompt.studies.discrete.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "discrete",
    "Gradient descent, SGD and Adam against gradient flow",
    "How far are discrete gradient descent, SGD and Adam from the gradient flow of the theory, and "
    "by which laws?",
    "Each gap is predicted from the flow alone, by equations linearised along it (backward error "
    "analysis for descent, a Lyapunov equation for SGD, a flow with memory for Adam), before a "
    "step is taken. Descent and Adam then run on the exact risk, SGD in many copies on drawn "
    "prompts, and the authors' own SGD over its first part.",
    DiscreteConfig,
    DiscreteConfig(
        lengths=(30, math.inf),
        until=3.0,
        step_sizes=(0.2, 0.1, 0.05, 0.025),
        modified_step_sizes=(0.2, 0.1),
        times=41,
        settled=300.0,
        sections=12,
        rounds=2,
        large_steps=5,
        large_until=60.0,
        sgd_until=0.5,
        sgd_times=6,
        batches=((0.05, 16, 64), (0.05, 128, 64), (0.05, 256, 64), (0.025, 128, 64)),
        wander_until=0.6,
        wander_batch=(0.02, 64, 24),
        noise_prompts=2**11,
        adam_lengths=(math.inf,),
        adam_until=0.3,
        adam_step_sizes=(1e-2, 5e-3),
        sign_until=0.02,
        sign_step_sizes=(4e-5, 2e-5),
        arrival_lengths=(30,),
        arrival_steps=450,
        paper_until=0.3,
        paper_steps=50,
        paper_runs=4,
        paper_prompts=2**9,
        paper_times=3,
        paper_records=3,
    ),
    parts=[  # the longest first, so that workers end together
        Part("SGD", noise.batches),
        Part("authors' SGD", noise.authors),
        Part(
            "stability",
            descent.stability,
            lambda config: map(float, config.lengths),
            along("length"),
        ),
        Part("descent", descent.descent, lambda config: KINDS, along("attention")),
        Part(
            "Adam",
            descent.adam_paths,
            lambda config: map(float, config.adam_lengths),
            along("adam_length"),
        ),
        Part("sign flow", descent.sign_gaps),
        Part("arrival", descent.adam_arrival),
        Part("wander", noise.wander, lambda config: config.wander_cases, along("wander_case")),
        Part("bowl", descent.bowl),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("N2"),
    variables=variables("discrete"),
)
