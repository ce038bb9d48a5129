"""Where does softmax attention beat linear attention, by how much, and for which tasks?"""

from largeprompt.runs.study import Part, Study, along, side_by_side, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.softmax_vs_linear.config import SoftmaxVsLinearConfig, all_head_lengths
from largeprompt.studies.softmax_vs_linear.figures import FIGURES
from largeprompt.studies.softmax_vs_linear.heads import free_heads, pairs, skewed_pairs
from largeprompt.studies.softmax_vs_linear.parts import (
    one_head_map,
    other_spectra,
    random_start,
    trained,
)
from largeprompt.studies.softmax_vs_linear.rules import RULES
from largeprompt.studies.softmax_vs_linear.tasks import drawn, location, outliers, shifts
from largeprompt.studies.variables import variables

STUDY = Study(
    "softmax_vs_linear",
    "Softmax against linear attention",
    "Where does softmax attention beat linear attention, by how much, and for which tasks?",
    "Least risks over the parameters, exact at every length: one softmax head, pairs of heads "
    "with opposite tilts by a two-dimensional rule, and linear attention, over length, dimension, "
    "noise and spectrum, with the long-prompt ratio in closed form; trained risks beside them. "
    "Then three tasks where the prompt has to be centred, searched or cleaned, with the predicted "
    "lines on which the answer turns round. Drawn prompts check the exact risks.",
    SoftmaxVsLinearConfig,
    SoftmaxVsLinearConfig(
        dims=(1, 5),
        noises=(0.0, 1.0),
        lengths=(20, 100, 1_000_000_000),
        spectra=("toeplitz",),
        spectrum_dim=3,
        spectrum_lengths=(100, 1_000_000_000),
        spectrum_noises=(0.0,),
        trained_spectra=("identity",),
        trained_dim=2,
        trained_lengths=(100,),
        starts=1,
        start_lengths=(30,),
        start_until=20.0,
        largest_scale=4.0,
        head_dims=(1, 2),
        head_noises=(0.0,),
        pair_lengths=(5, 1_000_000_000),
        head_lengths=(),
        skew_ratios=(-1.0,),
        free_heads=(2,),
        free_prompts=512,
        shift_variances=(0.1, 1.0),
        shift_dims=(1,),
        shift_lengths=(30,),
        spikes=(0.0, 4.0, 16.0),
        location_lengths=(100, 1_000_000),
        outlier_shares=(0.2,),
        outlier_lengths=(1000,),
        outlier_dim=2,
        replicas=2000,
    ),
    parts=[
        Part("heads", pairs, over=all_head_lengths, join=along("head_length", name=float)),
        Part(
            "trained",
            trained,
            over=lambda config: config.trained_spectra,
            join=stacked("trained_spectrum"),
        ),
        Part("start", random_start, over=lambda config: range(config.starts)),
        Part("free", free_heads),
        Part("spectra", other_spectra),
        Part("one", one_head_map),
        Part(
            "outliers",
            outliers,
            over=lambda config: config.outlier_lengths,
            join=along("outlier_length", name=float),
        ),
        Part("shifts", shifts),
        Part("skewed", skewed_pairs),
        Part("location", location),
        Part("drawn", drawn),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C7", "Q1"),
    variables=variables("softmax_vs_linear"),
    # computed in another order
    combine=lambda config, parts: side_by_side(config, parts).sortby("head_length"),
)
