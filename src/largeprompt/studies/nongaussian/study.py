"""What is left of the theory when tokens are not Gaussian, or not independent?"""

from collections.abc import Mapping

import xarray as xr

from largeprompt.runs.study import Part, Study, side_by_side, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.nongaussian.config import NonGaussianConfig
from largeprompt.studies.nongaussian.figures import FIGURES
from largeprompt.studies.nongaussian.parts import dependent, family, members
from largeprompt.studies.nongaussian.rules import RULES
from largeprompt.studies.variables import variables


def combine(config: NonGaussianConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All side by side, with the names that were joined as plain text."""
    data = side_by_side(config, parts)
    named = [name for name in data.coords if data[name].dtype.kind == "O"]
    return data.assign_coords({name: data[name].astype(str) for name in named})


STUDY = Study(
    "nongaussian",
    "Tokens that are not Gaussian, or not independent",
    "What do prompts of other tokens tend to, how far is that from the Gaussian theory, from "
    "which length on does it show?",
    "Four families of scalar laws leave the Gaussian by one parameter each. The exact law gives "
    "the distance to the tilt limit and to the affine read-out at every length, cumulants explain "
    "the gap, and prompts are drawn over both. Autocorrelated and repeated tokens are compared "
    "with the exact law at a predicted effective length.",
    NonGaussianConfig,
    NonGaussianConfig(
        terms=(1, 8),
        shapes=(1.5, 8.0),
        separations=(0.5, 0.8),
        skews=(0.1, 0.9),
        lengths=(10, 100, 1000),
        replicas=400,
        scaling_points=5,
        correlations=(0.0, 0.5, 0.9),
        repeats=(1, 2),
        dependent_lengths=(100, 1000),
        dependent_replicas=400,
    ),
    parts=[
        Part("family", family, over=lambda config: list(members(config)), join=stacked("family")),
        Part("dependent tokens", dependent),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("N1"),
    variables=variables("nongaussian"),
    combine=combine,
)
