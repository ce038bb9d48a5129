"""Training on long prompts beside the infinite prompt: near it, after it, and its end."""

from itertools import product

from largeprompt.runs.study import Part, Study, along, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.training.config import TrainingConfig
from largeprompt.studies.training.figures import FIGURES
from largeprompt.studies.training.flows import drift, ends, excess, tube
from largeprompt.studies.training.inputs import inputs
from largeprompt.studies.training.rules import RULES
from largeprompt.studies.variables import labels

LABELS = {  # what the variables of the dataset are, and their units
    "*_gradient_cosine": "cosine between gradients of finite and infinite prompt, * attention",
    "*_gradient_distance": "relative distance between these gradients, * attention",
    "*_distance": "distance between the flows of * attention",
    "*_envelope": "Grönwall envelope around the flow of * attention",
    "*_astray": "distance of a flow of * attention from another start to the limit",
    "*_limit_theta": "parameters along the infinite-prompt flow of * attention",
    "softmax_at_limit_endpoint": "excess risk of softmax attention at the limit's end point",
    "*_best": "least excess risk of * attention",
    "linear_predicted": "least excess risk of linear attention, in closed form",
    "*_time": "time of the flow, *",
    "drift_b": "read-out b",
    "drift_risk": "excess risk along the drift",
    "drift_theorem_b": "read-out b of the theorem's end point",
    "drift_optimal_b": "read-out b of the optimum at this length",
    "end_b": "read-out b at the end",
    "end_theorem_error": "relative error of b against the theorem's tr(Σ⁻²)^(1/4)",
    "end_b_error": "relative error of b against the end point that the conserved quantity allows",
    "end_A_error": "relative error of A against Σ⁻¹/b there",
    "end_conserved_error": "largest relative change of the conserved quantity",
    "end_risk": "risk at the end; the Bayes risk is 0",
    "end_converged": "1 where the gradient norm fell below its tolerance",
    "cell": "covariance and dimension",
    "inputs": "law of the inputs",
    "input_start": "where the flow on other inputs starts",
    "input_distance": "largest distance of the flow to that on the limit of the law",
    "input_gaussian_distance": "largest distance of the flow to that of the Gaussian theory",
    "input_level": "largest distance between the two infinite-prompt flows",
    "input_limit_risk": "risk where the flow on the limit of the law ends",
    "input_gaussian_risk": "risk where the flow of the Gaussian theory ends",
}

STUDY = Study(
    name="training",
    title="Training on long prompts, beside the infinite prompt",
    question="Does gradient flow at length L follow the infinite-prompt flow, where do both end, "
    "and from which length is the risk within eps?",
    method="Flows on the exact risk of every length and of the infinite prompt run side by side "
    "from the theorem's balanced start, to their ends. Their distance is compared with a Grönwall "
    "envelope, their gradients with each other. Excess risks are minimized exactly up to L = 10⁹.",
    config=TrainingConfig,
    quick=TrainingConfig(
        dim=3,
        lengths=(30, 1000, 10**5),
        times=31,
        excess_dims=(3,),
        excess_decades=5,
        drift_until=3e3,
        end_covariances=("identity", "toeplitz"),
        end_dims=(3,),
        input_lengths=(10, 100, 10_000),
        input_until=3.0,
        input_steps=12,
    ),
    parts=[
        Part("tube", tube, lambda config: list(KINDS)),
        Part(
            "ends",
            ends,
            lambda config: product(config.end_covariances, config.end_dims),
            along("cell", name="{}, d = {}".format),
        ),
        Part("excess", excess, lambda config: config.excess_dims, stacked("dim")),
        Part("drift", drift),
        Part("inputs", inputs, lambda config: config.inputs, stacked("inputs")),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C5", "C6", "C7", "E2"),
    variables=labels(LABELS),
)
