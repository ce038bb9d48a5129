"""Which figures a study has, with the captions that stand under them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import xarray as xr
from matplotlib.figure import Figure

from largeprompt.report.figures.drift import drift_figure
from largeprompt.report.figures.endpoint import endpoint_figure
from largeprompt.report.figures.exponent import exponent_figure
from largeprompt.report.figures.paper import sgd_figure, trained_figure, training_figure
from largeprompt.report.figures.phase_diagram import phase_diagram_figure
from largeprompt.report.figures.sharpness import sharpness_figure
from largeprompt.report.figures.trajectory import excess_figure, parameters_figure, tube_figure


@dataclasses.dataclass(frozen=True)
class Captioned:
    """A figure: its file name, what draws it from the study's dataset, and its caption."""

    name: str
    draw: Callable[[xr.Dataset], Figure]
    caption: str


CATALOGUE: dict[str, tuple[Captioned, ...]] = {
    "exponent": (
        Captioned(
            "exponent",
            exponent_figure,
            "Decay exponent of the query-averaged error between lengths, by the exact law, with the predicted g(H) and 1/(1+H²).",
        ),
    ),
    "phase_diagram": (
        Captioned("phase_diagram", phase_diagram_figure, "Effective number of tokens over score variance and length, with the regimes."),
    ),
    "sharpness": (Captioned("sharpness", sharpness_figure, "Certified bound over exact error against L/ρ: 1 is sharp."),),
    "trajectory": (
        Captioned(
            "tube",
            tube_figure,
            "Distance of the flow at length L to the infinite-prompt flow: in time with its Grönwall envelope (dotted), and its "
            "supremum against L for both attentions.",
        ),
        Captioned(
            "parameters", parameters_figure, "Entries of A and the read-out b along training; solid softmax, dashed linear attention."
        ),
        Captioned(
            "excess",
            excess_figure,
            "Excess risk against L for identity covariance: at the optimum of each length, softmax above linear by a constant factor; "
            "and for softmax at the infinite-prompt endpoint, where it falls more slowly than 1/L in low dimension.",
        ),
    ),
    "endpoint": (
        Captioned(
            "endpoint", endpoint_figure, "b at the end of the infinite-prompt flow from five starts, and the errors of the balanced one."
        ),
    ),
    "drift": (
        Captioned(
            "drift",
            drift_figure,
            "Read-out b and risk against time: after the fast approach the parameters of every finite length drift for a time of "
            "order L, to an endpoint that is not the infinite prompt's.",
        ),
    ),
    "paper": (
        Captioned("trained", trained_figure, "Risk at the end of training against L, both settings, with the Bayes risk."),
        Captioned("training", training_figure, "Risk and distance to the Bayes predictor along training (intended setting)."),
        Captioned("sgd", sgd_figure, "SGD as the authors ran it (marks) over the exact flow (lines)."),
    ),
}


def figures(study: str) -> tuple[Captioned, ...]:
    """Figures of a study, none for one that has none."""
    return CATALOGUE.get(study, ())
