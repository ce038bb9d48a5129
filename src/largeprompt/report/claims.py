"""The paper's claims and the experiments asked of it, a short sentence each; the rows of the report's summary."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Claim:
    """One row group of the summary.

    Attributes
    ----------
    study
        Study that is this experiment, whose verdicts may stand under the claims that it tests.
    """

    id: str
    name: str
    sentence: str
    study: str = ""


CLAIMS = (
    Claim("C1", "Operator on measures", "One formula for attention serves a finite prompt and an infinite one: both are measures."),
    Claim(
        "C2",
        "Gaussian limit",
        "For tokens N(m, Γ) the infinite-prompt output is the affine map V(m + ΓKᵀQz), for singular Γ too.",
    ),
    Claim(
        "C3",
        "Output concentration",
        "With sub-Gaussian tokens the mean squared distance of the output to its limit falls as a power of L, up to ln L.",
    ),
    Claim(
        "C4",
        "Gradient concentration",
        "The derivatives of the output in U = KᵀQ and in V approach their limits in the same way, up to ln² L.",
    ),
    Claim(
        "C5",
        "Stability along training",
        "Over bounded times the gradient flow at length L stays near the infinite-prompt flow, and its final risk is at most ε "
        "higher once L is large.",
    ),
    Claim(
        "C6",
        "In-context linear regression",
        "From a small balanced start the infinite-prompt flow ends at b = tr(Σ⁻²)^¼, A = Σ⁻¹/b with the Bayes risk, and long "
        "prompts end near there.",
    ),
    Claim("C7", "Transfer", "Softmax attention over long prompts has the limit and the training dynamics of linear attention."),
    Claim(
        "E1",
        "Convergence",
        "Distance of the finite-prompt output and gradients to the limit, from L = 10 to 10,000, against the bound.",
        "convergence",
    ),
    Claim(
        "E2", "Trajectories", "Parameters at length L along training, beside those of the infinite prompt: the tube.", "trajectory"
    ),
    Claim("E3", "Covariance stress", "Which constants of the bounds survive when the eigenvalues of Γ are spread.", "anisotropy"),
    Claim(
        "N1",
        "Non-Gaussian tokens",
        "How tokens that leave the Gaussian by degrees, or depend on each other, approach the limit of their own law.",
        "nongaussian",
    ),
    Claim("N2", "Discrete training", "The gap between gradient flow and gradient descent, SGD and Adam.", "discrete"),
    Claim("N3", "Heavy tails", "Where concentration breaks under heavy tails, for outputs and for training.", "heavytail"),
    Claim("F1", "Failure signatures", "What short contexts and ill-conditioned covariances do to the theory.", "shortcontext"),
    Claim(
        "Q1",
        "Softmax against linear",
        "At which finite prompts, and for which tasks, softmax attention beats linear attention, and by how much.",
        "softmax_vs_linear",
    ),
    Claim("Q2", "Depth", "Whether the infinite-prompt picture survives stacked residual layers.", "depth"),
    Claim("Q3", "In-context n-grams", "Whether it holds for Markov chains, whose tokens are dependent and discrete.", "ngram"),
    Claim(
        "P1", "The authors' experiment", "Softmax and linear attention trained by SGD on in-context regression in d = 5.", "paper"
    ),
)

AUDIT = Claim("audit", "Audit of a transformer", "Which heads of a trained model read only the moments of their prompt.", "audit")
