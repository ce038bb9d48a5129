"""The paper's claims, the experiments asked for, and the questions beyond, a sentence each."""

from largeprompt.runs.judging import Claim

CLAIMS = (
    Claim(
        "C1",
        "Operator on measures",
        "One formula for attention serves a finite prompt and an infinite one: both are measures.",
    ),
    Claim(
        "C2",
        "Gaussian limit",
        "For tokens N(m, Γ) the infinite-prompt output is the affine map V(m + ΓKᵀQz), for "
        "singular Γ too.",
    ),
    Claim(
        "C3",
        "Output concentration",
        "With sub-Gaussian tokens the mean squared distance of the output to its limit falls as a "
        "power of L, up to ln L.",
    ),
    Claim(
        "C4",
        "Gradient concentration",
        "The derivatives of the output in U = KᵀQ and in V approach their limits in the same way, "
        "up to ln² L.",
    ),
    Claim(
        "C5",
        "Stability along training",
        "On bounded times the flow at length L stays near the infinite-prompt flow; for large L "
        "its risk ends at most ε higher.",
    ),
    Claim(
        "C6",
        "In-context linear regression",
        "From a small balanced start the infinite-prompt flow ends at b = tr(Σ⁻²)^¼, A = Σ⁻¹/b "
        "with the Bayes risk; long prompts end nearby.",
    ),
    Claim(
        "C7",
        "Transfer",
        "Softmax attention over long prompts has the limit and the training dynamics of linear "
        "attention.",
    ),
    Claim(
        "E1",
        "Convergence",
        "Distance of the finite-prompt output and gradients to the limit, from L = 10 to 10,000, "
        "against the bound.",
        experiment=True,
    ),
    Claim(
        "E2",
        "Trajectories",
        "Parameters at length L along training, compared with those of the infinite prompt.",
        experiment=True,
    ),
    Claim(
        "E3",
        "Covariance stress",
        "Which constants of the bounds remain when the eigenvalues of Γ are spread.",
        experiment=True,
    ),
    Claim(
        "N1",
        "Non-Gaussian tokens",
        "How tokens that leave the Gaussian by degrees, or depend on each other, approach the "
        "limit of their own law.",
        "Do other tokens converge?",
    ),
    Claim(
        "N2",
        "Discrete training",
        "The gap between gradient flow and gradient descent, SGD and Adam.",
        "Does SGD follow the flow?",
    ),
    Claim(
        "N3",
        "Heavy tails",
        "Where concentration breaks under heavy tails, for outputs and for training.",
        "Are heavy tails safe?",
    ),
    Claim(
        "F1",
        "Failure signatures",
        "What short contexts and ill-conditioned covariances do to the theory.",
        "Are short prompts enough?",
    ),
    Claim(
        "Q1",
        "Softmax against linear",
        "At which finite prompts, and for which tasks, softmax attention beats linear attention, "
        "and by how much.",
        "Does softmax beat linear attention?",
    ),
    Claim(
        "Q2",
        "Depth",
        "Whether the infinite-prompt picture survives stacked residual layers.",
        "Does it survive depth?",
    ),
    Claim(
        "Q3",
        "In-context n-grams",
        "Whether it holds for Markov chains, whose tokens are dependent and discrete.",
        "Does it hold for n-grams?",
    ),
    Claim(
        "P1",
        "The authors' experiment",
        "Softmax and linear attention trained by SGD on in-context regression in d = 5.",
        experiment=True,
    ),
)


def claims(*ids: str) -> tuple[Claim, ...]:
    """Claims by their ids, in the order of the list."""
    by_id = {claim.id: claim for claim in CLAIMS}
    if unknown := set(ids) - set(by_id):
        raise ValueError(f"no such claims: {sorted(unknown)}")
    return tuple(claim for claim in CLAIMS if claim.id in ids)
