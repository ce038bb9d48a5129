"""Where does softmax attention beat linear attention, by how much, and for which tasks?"""

from typing import Annotated

from pydantic import Field

from largeprompt.runs.settings import (
    Dimension,
    Distinct,
    Increasing,
    Length,
    NonNegative,
    Positive,
    settings,
)
from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.claims import claims
from largeprompt.studies.softmax_vs_linear.figures import FIGURES
from largeprompt.studies.softmax_vs_linear.location import location
from largeprompt.studies.softmax_vs_linear.outliers import outliers
from largeprompt.studies.softmax_vs_linear.regression import Spectrum, one_head, other_spectra, pair
from largeprompt.studies.softmax_vs_linear.rules import RULES
from largeprompt.studies.softmax_vs_linear.shifted import shifted
from largeprompt.studies.variables import labels

# up to where the lattice of score scales is accurate to 1e-6
LatticeDim = Annotated[int, Field(ge=1, le=20)]
# a pair of heads is of no use for one token
SeveralTokens = Annotated[int, Field(ge=2, le=10**15)]
ManyTokens = Annotated[int, Field(ge=20, le=10**15)]  # else a prompt may hold outliers alone
Scale = Annotated[float, Field(ge=0.1, le=12)]


@settings
class SoftmaxVsLinearConfig:
    """Regression with tr WΣ = 1, then tasks that need more than moments."""

    dims: Distinct[LatticeDim] = (1, 2, 3, 5, 10, 20)
    noises: Distinct[NonNegative] = (0.0, 0.1, 1.0, 10.0)  # variances of the noise in the answers
    lengths: Increasing[Length] = (
        *(1, 2, 3, 5, 10, 20, 50, 100, 300, 1000, 10_000, 1_000_000, 1_000_000_000),
    )
    # covariances of inputs and weights
    spectra: Distinct[Spectrum] = ("toeplitz", "condition 1e4", "queries near a line")
    spectrum_dim: Dimension = 5  # dimension of the inputs with these covariances
    # prompt lengths with these covariances
    spectrum_lengths: Increasing[Length] = (10, 1000, 1_000_000_000)
    # variances of the noise with these covariances
    spectrum_noises: Distinct[NonNegative] = (0.0, 1.0)
    largest_scale: Scale = 6.5  # largest scale of the scores that is searched
    # dimensions at which two heads with opposite tilts answer
    pair_dims: Distinct[LatticeDim] = (1, 2, 5)
    pair_noises: Distinct[NonNegative] = (0.0, 1.0)  # variances of the noise for pairs of heads
    # prompt lengths for pairs of heads
    pair_lengths: Increasing[SeveralTokens] = (
        *(2, 3, 4, 7, 20, 50, 300, 1000, 1_000_000, 1_000_000_000),
    )
    # variances of a prompt's own mean
    shift_variances: Increasing[Positive] = (0.01, 0.1, 1.0, 10.0)
    shift_dims: Distinct[LatticeDim] = (1, 5)  # dimensions of prompts with a mean of their own
    # lengths of prompts with a mean of their own
    shift_lengths: Increasing[SeveralTokens] = (3, 10, 30, 100, 1000, 10_000)
    # strengths of the mark on the informative token
    spikes: Increasing[NonNegative] = (
        *(0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0),
    )
    # lengths of prompts with one informative token
    location_lengths: Increasing[SeveralTokens] = (10, 100, 1000, 10_000, 1_000_000, 1_000_000_000)
    # shares of outliers among the tokens
    outlier_shares: Increasing[Annotated[float, Field(gt=0, lt=0.7)]] = (0.05, 0.1, 0.2, 0.4, 0.6)
    # lengths of prompts with outliers
    outlier_lengths: Increasing[ManyTokens] = (30, 100, 1000, 100_000)
    outlier_dim: LatticeDim = 5  # dimension of prompts with outliers


LABELS = {
    "limit_ratio": "softmax over linear excess risk of long prompts, predicted",
    "noise_limit": "softmax over linear excess risk where noise dominates, predicted",
    "*_best": "relative excess risk of the best attention, *",
    "spectrum_limit": "softmax over linear excess risk of long prompts, predicted",
    "spectrum_softmax": "relative excess risk of the best softmax head",
    "spectrum_linear": "relative excess risk of the best linear attention",
    "pair_linear": "relative excess risk of the best linear attention",
    "pair_vanishing": "relative excess risk of a pair as its tilts vanish, predicted",
    "outlier_predicted": "variance of outliers at which softmax wins, first order in 1/L",
    "outlier_crossing": "variance of outliers at which softmax wins, exact",
    "outlier_unmarked": "risk of softmax over linear attention without a mark",
    "shift_crossing": "length from which a pair beats linear attention, predicted [tokens]",
    "shift_floor": "relative excess risk that linear attention keeps for ever",
    "shift_linear": "relative excess risk of linear attention on prompts with a mean of their own",
    "shift_pair": "relative excess risk of a pair of heads on prompts with a mean of their own",
    "location_annealed": "predicted share of the answer's variance that softmax reads",
    "location_softmax": "share of the answer's variance that softmax reads, exact",
    "location_linear": "share of the answer's variance that linear attention reads",
    "location_half": "spike at which softmax reads half",
    "location_threshold": "predicted threshold 2 ln L of the spike",
    "*_noise": "variance of the noise in the answers, *",
    "outlier_share": "share of outliers among the tokens",
    "shift_variance": "variance of the prompt's mean",
    "spike": "strength of the mark on the informative token",
}

STUDY = Study(
    name="softmax_vs_linear",
    title="Softmax against linear attention",
    question="Where does softmax attention beat linear attention, by how much, and for which "
    "tasks?",
    method="Least risks over the parameters, exact at every length, of one softmax head, a pair "
    "with opposite tilts, and linear attention, with the long-prompt ratio in closed form. Then "
    "three tasks where the prompt has to be centered, searched or cleaned.",
    config=SoftmaxVsLinearConfig,
    quick=SoftmaxVsLinearConfig(
        dims=(1, 5),
        noises=(0.0, 1.0),
        lengths=(20, 100, 1_000_000_000),
        spectra=("toeplitz",),
        spectrum_dim=3,
        spectrum_lengths=(100, 1_000_000_000),
        spectrum_noises=(0.0,),
        largest_scale=4.0,
        pair_dims=(1, 2),
        pair_noises=(0.0,),
        pair_lengths=(5, 1_000_000_000),
        shift_variances=(0.1, 1.0),
        shift_dims=(1,),
        shift_lengths=(30,),
        spikes=(0.0, 4.0, 16.0),
        location_lengths=(100, 1_000_000),
        outlier_shares=(0.2,),
        outlier_lengths=(1000,),
        outlier_dim=2,
    ),
    parts=[
        Part("one", one_head, lambda config: config.lengths, along("length")),
        Part("pair", pair, lambda config: config.pair_lengths, along("pair_length")),
        Part("spectra", other_spectra, lambda config: config.spectra, along("spectrum")),
        Part("outliers", outliers, lambda config: config.outlier_lengths, along("outlier_length")),
        Part("shifted", shifted, lambda config: config.shift_lengths, along("shift_length")),
        Part("location", location),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("Q1"),
    variables=labels(LABELS),
)
