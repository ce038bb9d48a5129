"""Which figures a study has, with the captions that stand under them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import xarray as xr
from matplotlib.figure import Figure

from largeprompt.audit.figures import audit_heads_figure, readouts_figure, regimes_figure, replacement_figure
from largeprompt.studies.anisotropy.figures import collapse_figure, spectrum_constants_figure
from largeprompt.studies.convergence.figures import constants_figure, convergence_figure
from largeprompt.studies.depth.figures import band_figure, breaking_figure, normalised_figure
from largeprompt.studies.discrete.figures import adam_figure, descent_figure
from largeprompt.studies.discrete.figures import sgd_figure as discrete_sgd_figure
from largeprompt.studies.drift.figures import drift_figure
from largeprompt.studies.endpoint.figures import endpoint_figure
from largeprompt.studies.exponent.figures import exponent_figure
from largeprompt.studies.heavytail.figures import breakdown_figure, tails_figure
from largeprompt.studies.heavytail.figures import training_figure as heavy_training_figure
from largeprompt.studies.limit.figures import identity_figure, limit_figure
from largeprompt.studies.ngram.figures import ngram_figure, ngram_operator_figure, ngram_training_figure
from largeprompt.studies.nongaussian.figures import families_figure, inputs_figure, ladder_figure
from largeprompt.studies.paper.figures import sgd_figure, trained_figure, training_figure
from largeprompt.studies.phase_diagram.figures import phase_diagram_figure
from largeprompt.studies.sharpness.figures import sharpness_figure
from largeprompt.studies.shortcontext.figures import regression_figure, short_figure
from largeprompt.studies.softmax_vs_linear.figures import heads_figure, regression_map_figure, selection_map_figure
from largeprompt.studies.trained.figures import trained_heads_figure, trained_risk_figure
from largeprompt.studies.trajectory.figures import excess_figure, parameters_figure, tube_figure


@dataclasses.dataclass(frozen=True)
class Captioned:
    """A figure: its file name, what draws it from the study's dataset, and its caption."""

    name: str
    draw: Callable[[xr.Dataset], Figure]
    caption: str


CATALOGUE: dict[str, tuple[Captioned, ...]] = {
    "limit": (
        Captioned(
            "limit",
            limit_figure,
            "Root mean squared distance of attention over drawn prompts to the limit of their own law (left, with the first order) "
            "and to the affine map with the same moments (right, with the predicted gap): only Gaussian tokens reach the latter.",
        ),
        Captioned(
            "identity",
            identity_figure,
            "Left: relative error of the operator against quadrature, largest over random layers, queries and laws, by dimension; "
            "crosses: what the affine map would miss for mixtures. Right: gap between limit and affine map for laws that are not "
            "Gaussian, predicted (lines) and by quadrature (marks), d = 4.",
        ),
    ),
    "convergence": (
        Captioned(
            "convergence",
            convergence_figure,
            "Mean squared distance to the limit against L for three score variances: output (above) and derivative in U (below). "
            "Exact law, proved bound, drawn prompts, first order, and the paper's form with constants fitted to the drawn "
            "points. The grey line is L = e^(2σ²), from which on the prompt is in the linear regime.",
        ),
        Captioned(
            "constants",
            constants_figure,
            "Slope in L and the constants of the paper's form, fitted to drawn prompts with 95 % intervals from resampled streams: "
            "neither c1 nor c2 is the same for all score variances. Grey: slopes that a public audit found.",
        ),
    ),
    "exponent": (
        Captioned(
            "exponent",
            exponent_figure,
            "Decay exponent of the query-averaged error between decades of L, by the exact law, with the predicted g(H), the "
            "1/(1+H²) of 2512.10656, and the paper's form c2/H² with c2 = 1. In d = 4 a known factor (ln L)^(3/2) holds it lower.",
        ),
    ),
    "phase_diagram": (
        Captioned(
            "phase_diagram",
            phase_diagram_figure,
            "Effective number of tokens 1/E[Σ w²] over score variance and length, exact, with the borders of the three regimes.",
        ),
    ),
    "sharpness": (
        Captioned(
            "sharpness",
            sharpness_figure,
            "Certified bound over exact mean squared error against L/ρ, scalar tokens: 1 is sharp.",
        ),
    ),
    "trajectory": (
        Captioned(
            "tube",
            tube_figure,
            "Distance of the flow at length L to the infinite-prompt flow: in time with its Grönwall envelope (dotted), and its "
            "supremum against L for both attentions.",
        ),
        Captioned(
            "parameters",
            parameters_figure,
            "Entries of A and the read-out b along training; solid softmax, dashed linear attention.",
        ),
        Captioned(
            "excess",
            excess_figure,
            "Excess risk against L for identity covariance: at the optimum of each length, softmax above linear by a constant "
            "factor; and for softmax at the infinite-prompt endpoint, where it falls more slowly than 1/L in low dimension.",
        ),
    ),
    "endpoint": (
        Captioned(
            "endpoint",
            endpoint_figure,
            "b at the end of the infinite-prompt flow from five starts, and the errors of the balanced one.",
        ),
    ),
    "drift": (
        Captioned(
            "drift",
            drift_figure,
            "Read-out b and risk against time: after the fast approach the parameters of every finite length drift for a time of "
            "order L, to the optimum of their own length (marks), which is not the infinite prompt's endpoint.",
        ),
    ),
    "paper": (
        Captioned("trained", trained_figure, "Risk at the end of training against L, both settings, with the Bayes risk."),
        Captioned("training", training_figure, "Risk and distance to the Bayes predictor along training (intended setting)."),
        Captioned("sgd", sgd_figure, "SGD as the authors ran it (marks) over the exact flow (lines)."),
    ),
    "anisotropy": (
        Captioned(
            "collapse",
            collapse_figure,
            "Seven spectra of equal trace read along weak, strong and mixed directions, all with the same score variance: error "
            "times L, error relative to the output, and error over tr Γ + ‖Γu‖², which brings long prompts together.",
        ),
        Captioned(
            "constants",
            spectrum_constants_figure,
            "Constants of the paper's form fitted to each spectrum, direction and score variance; and the decay exponent for "
            "random queries of one mean score variance, whose H² the largest eigenvalue sets.",
        ),
    ),
    "shortcontext": (
        Captioned(
            "short",
            short_figure,
            "L = 1 to 30, exact: relative error of the limit, first order over exact error (grey: within 10 %), and relative "
            "error for ill-conditioned tokens along weak and strong directions.",
        ),
        Captioned(
            "regression",
            regression_figure,
            "Risk of in-context regression at the infinite-prompt optimum against L, d = 5, by condition number of the inputs; "
            "marks: predicted at L = 1; grey band: L up to 30.",
        ),
    ),
    "nongaussian": (
        Captioned(
            "families",
            families_figure,
            "Four families that leave the Gaussian, scalar tokens, one tilt: root mean squared distance of attention to the tilt "
            "limit of its law (above) and to the affine read-out (below). Lines: exact law; marks: drawn prompts; dotted: the "
            "predicted gap.",
        ),
        Captioned(
            "ladder",
            ladder_figure,
            "Gap against the distance from the Gaussian; share of the gap that the third and fourth cumulants give, against the "
            "tilt over the radius of convergence (dashed); length from which on the gap exceeds the noise of a finite prompt, for "
            "all laws (marks as in the first panel); effective length of autocorrelated and repeated Gaussian tokens.",
        ),
        Captioned(
            "inputs",
            inputs_figure,
            "In-context regression on inputs that are not Gaussian: largest distance of the flow at length L to the flow on the "
            "tilt limit (above) and to the Gaussian theory's flow (below, dotted: distance of the two limits). Lines: exact risk; "
            "marks: drawn prompts, with two standard errors.",
        ),
    ),
    "discrete": (
        Captioned(
            "descent",
            descent_figure,
            "Left: largest distance of gradient descent to the flow (filled) and to the modified flow (open), softmax, with the "
            "predicted first order. Middle: largest Hessian eigenvalue along the flow. Right: mean sharpness at the end of descent "
            "with large steps, both axes in units of the end point of the flow.",
        ),
        Captioned(
            "sgd",
            discrete_sgd_figure,
            "Left: root mean squared distance of SGD to the flow against step size over batch size, with the law. Middle: variance "
            "between runs along the slow direction, predicted (lines) and drawn (marks). Right: the law at the authors' settings "
            "to the end of their training, with runs over its first part.",
        ),
        Captioned(
            "adam",
            adam_figure,
            "Left: largest distance of Adam to the sign flow and to its flow with memory against the step size. Right: read-out b "
            "along Adam and the flows, and where the gradient flow ends.",
        ),
    ),
    "heavytail": (
        Captioned(
            "tails",
            tails_figure,
            "Lines: exact, by quadrature; marks: drawn prompts, ± 2 s.e.; dotted: what is predicted as L grows. Left: effective "
            "number of tokens of Student-t prompts, which for every finite df rises and then falls to one. Middle: Σ w² of "
            "Laplace prompts on either side of the edge of their cgf. Right: how the weights of Student-t prompts become argmax.",
        ),
        Captioned(
            "breakdown",
            breakdown_figure,
            "Left: df below which Σ w² is twice that of Gaussian tokens of the same variance, exact (lines), drawn (marks, "
            "± 2 s.e.; hollow: too few prompts to be judged) and by a rule of thumb (dotted). Right: tail index of the largest "
            "weights of one prompt, of the law's quantiles (lines) and drawn (median and quartiles); grey: 0.7.",
        ),
        Captioned(
            "heavy_training",
            heavy_training_figure,
            "In-context regression with one Student-t input after SGD on drawn prompts: population risk (left, df > 2) and median "
            "squared error on independent prompts over that of saying 0 (right), with exact gradient descent and the least risk.",
        ),
    ),
    "softmax_vs_linear": (
        Captioned(
            "selection",
            selection_map_figure,
            "Where softmax wins. One informative token among L: share of the answer that is read, exact (marks), "
            "predicted (lines), "
            "linear attention (dashed). Marked outliers: the variance of the outliers above which softmax has the lower risk. "
            "Prompts with a mean of their own: linear attention keeps an error, a pair of softmax heads does not; grey: the "
            "predicted length from which on the pair wins.",
        ),
        Captioned(
            "regression",
            regression_map_figure,
            "Where it does not: excess risk of the best softmax head over that of the best linear attention in "
            "in-context regression, "
            "against L with the predicted limits, and for long prompts against d at several noise levels.",
        ),
        Captioned(
            "heads",
            heads_figure,
            "Excess risk of one softmax head and of pairs with opposite tilts, relative to linear attention; dashed: "
            "vanishing tilts, "
            "which are linear attention over one token less.",
        ),
    ),
    "depth": (
        Captioned(
            "depth",
            band_figure,
            "Relative error of token outputs (above) and of the empirical covariance (below) against the layer, by prompt length, "
            "one column for each size of V: predicted band (lines, up to the layer from which on there is none) and drawn prompts "
            "(marks, ± 2 standard errors of the square). Dashed: the noise of the layers added up as if they were independent.",
        ),
        Captioned(
            "breaking",
            breaking_figure,
            "Left: score variance of the recursion, with the edge of the linear regime for the shortest and the longest prompt. "
            "Right: the layer at which the closure should break, by the recursion and the band alone, against the layer from which "
            "on the steps of the tokens are wrong by half; every stack and length, jittered.",
        ),
        Captioned(
            "normalised",
            normalised_figure,
            "With normalisation and V of size 1: relative error of the closure against the length, with the level at which it "
            "should stop (dashed), and that level beside the excess kurtosis of what the layers read, against the dimension.",
        ),
    ),
    "ngram": (
        Captioned(
            "ngram",
            ngram_figure,
            "Attention over paths of Markov chains. Left: squared distance to the discrete tilt limit with the final context as "
            "query, "
            "drawn (marks, ± 2 s.e.), exact (lines, chains with few contexts) and predicted to first order (dashed); crosses: the "
            "symbols of a chain shuffled in time, with the level they must stop at. Middle: constant extrapolated from drawn "
            "paths over "
            "the one predicted through the fundamental matrix, three queries of every chain. Right: price of dependence against "
            "the "
            "relaxation time for a chain made ever slower, predicted (lines) and drawn at the longest length (marks).",
        ),
        Captioned(
            "ngram_training",
            ngram_training_figure,
            "Training of the tilt strength. Left: flow of β on infinite prompts, with its law, on the exact risk of each length "
            "(lines) "
            "and on drawn prompts (marks, ± 2 s.e.). Middle: where training stops, predicted, exact and drawn. Right: largest "
            "distance "
            "between the flows on a bounded time, exact, drawn and to first order.",
        ),
        Captioned(
            "ngram_operator",
            ngram_operator_figure,
            "Left: distance of the limit to the row of the query, with its leading term, and to the affine read-out, against β. "
            "Middle: "
            "excess squared risk over random chains against β, drawn, with the β predicted to be best (stars). Right: what "
            "smoothing "
            "saves over the empirical n-gram, in units of what attention is predicted to save on long prompts.",
        ),
    ),
    "audit": (
        Captioned(
            "heads",
            audit_heads_figure,
            "Every head by layer: what it does, the variance of its scores, how many tokens it reads, and the error of the affine "
            "read-out relative to its output; medians over texts and query positions.",
        ),
        Captioned(
            "regimes",
            regimes_figure,
            "Score variance of every head against the logarithm of the number of tokens, with the lines between linear, heavy and "
            "frozen; and the error of the affine read-out against score variance (dotted: tolerance).",
        ),
        Captioned(
            "readouts",
            readouts_figure,
            "Error of the read-outs: mean value, affine, with third and fourth cumulants along the tilt, Gaussian mixtures. Right: "
            "the affine error against what the exact law expects of as many Gaussian tokens with the same moments (line: equal).",
        ),
        Captioned(
            "replacement",
            replacement_figure,
            "The model with more and more heads replaced by their read-outs: in the order of the audit, at random, in reverse, and "
            "with other read-outs in the order of the audit.",
        ),
    ),
    "trained": (
        Captioned(
            "trained_risk",
            trained_risk_figure,
            "Risk above the noise of trained transformers on fresh prompts (marks, mean and standard error over trainings), over "
            "the exact curves of one layer and the Bayes risk, all computed beforehand. Grey: lengths of training.",
        ),
        Captioned(
            "trained_heads",
            trained_heads_figure,
            "Heads of trained transformers at the query token: alpha along training, with the level that the exact optimum of one "
            "head predicts (dashed); error of the affine read-out after training, and the mean square that Gaussian tokens of the "
            "same moments and number would have over its own; risk after heads are replaced (median and range over trainings, "
            "20 or more at the edge). Dotted: borders of the regimes linear, heavy, frozen; grey: the audit's tolerance.",
        ),
    ),
}


def figures(study: str, data: xr.Dataset | None = None) -> tuple[Captioned, ...]:
    """Figures of a study, none for one that has none; with a dataset, those that it can draw."""
    found = CATALOGUE.get(study, ())
    return found if data is None or "curve" in data.dims or study != "audit" else found[:-1]
