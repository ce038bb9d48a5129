"""C6: does the infinite-prompt flow of in-context regression end where Theorem 5.1 says, and what
outside its conditions?
"""

from itertools import product

from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.claims import claims
from largeprompt.studies.endpoint.figures import FIGURES
from largeprompt.studies.endpoint.parts import EndpointConfig, flows
from largeprompt.studies.endpoint.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "endpoint",
    "Where the infinite-prompt flow ends",
    "Does gradient flow on the infinite prompt reach tr(Σ⁻²)^¼ and Σ⁻¹/b, and are the theorem's "
    "conditions needed?",
    "The closed infinite-prompt risk is descended by a stiff solver with its exact Hessian until "
    "the gradient norm is below 1e-12. Covariances with condition number 1 to 10⁴, d up to 20; "
    "the start is balanced as in the theorem, larger, or unbalanced. The endpoint, the conserved "
    "quantity and the risk are compared with the theorem.",
    EndpointConfig,
    EndpointConfig(covariances=("identity", "toeplitz"), dims=(3,)),
    parts=[
        Part(
            "flows",
            flows,
            lambda config: product(config.covariances, config.dims),
            along("cell", name="{}, d = {}".format),
        )
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C6"),
    variables=variables("endpoint"),
)
