"""The calls that make what the explorer shows: run to make it, and shown as they were run."""

from typing import Any

from largeprompt.explore.state import LawState, RunsState, TrainingState

TOKENS = {
    "gaussian": "lp.Gaussian(0 * spectrum, torch.diag(spectrum))",
    "clusters": (
        "lp.GaussianMixture([0.5, 0.5], torch.stack([0.9 * root[0], -0.9 * root[0]]), "
        "(root**2 - 0.81 * torch.outer(root[0], root[0])).expand(2, dim, dim))"
    ),
    "signs": "lp.Rademacher(dim).map(root)",
    "uniform": "lp.Uniform(dim).map(root)",
    "laplace": "lp.Laplace(dim).map(root)",
    "sphere": "lp.Sphere(dim).map(root)",
}
DIRECTIONS = {
    "strong": "torch.eye(dim, dtype=torch.float64)[0]",
    "weak": "torch.eye(dim, dtype=torch.float64)[-1]",
    "all": "torch.ones(dim, dtype=torch.float64) / dim**0.5",
}


def law_setup(state: LawState) -> str:
    """Layer, law of the tokens and query."""
    return f"""\
import torch
import largeprompt as lp

dim = {state.dim}
spectrum = torch.arange(1, dim + 1, dtype=torch.float64) ** -{state.decay:g}  # variances of the coordinates
spectrum *= dim / spectrum.sum()
root = torch.diag(spectrum.sqrt())
mu = {TOKENS[state.law]}
attention = lp.SoftmaxAttention(torch.eye(dim, dtype=torch.float64), torch.eye(dim, dtype=torch.float64))
z = {state.strength:g} * {DIRECTIONS[state.direction]} / spectrum.sqrt()
"""


def law_code(state: LawState) -> str:
    """What the first tab shows, as a program: the set-up, then one call for each picture."""
    return f"""{law_setup(state)}
law = lp.finite_prompt(attention, mu, z, {state.length})  # exact, at any length
limit = attention(mu, z)  # the infinite prompt
matrix, offset = lp.affine_limit(attention, mu)
affine = matrix @ z + offset  # what mean and covariance alone would give
print(law)
print(lp.certificate(attention, mu, z, {state.length}))
print(lp.prompt_length(attention, mu, z, tolerance={state.tolerance:g}))
"""


def training_setup(state: TrainingState) -> str:
    """Flows at several lengths and at infinity from the same start, their distance, and the Bayes
    risks.
    """
    kind = {"softmax": "SoftmaxAttention", "linear": "LinearAttention"}[state.attention]
    return f"""\
import numpy as np
import torch
import largeprompt as lp

dim, eye = {state.dim}, torch.eye({state.dim}, dtype=torch.float64)
task = lp.LinearRegression(eye, eye / dim, noise_variance={state.noise:g})
U, V = torch.zeros(dim + 1, dim + 1, dtype=torch.float64), torch.zeros(1, dim + 1, dtype=torch.float64)
U[:dim, :dim], V[0, dim] = {state.start:g} * eye, {state.start:g}
attention = lp.{kind}(U, V)
lengths, times = [10, 100, 1000], np.append(0.0, np.geomspace({state.until:g} / 300, {state.until:g}, 19))
options = {{"parametrization": "block", "times": times, "tolerance": 1e-4}}
tube = lp.training.tube(task, attention, lengths, until={state.until:g}, **options)
bayes = [task.bayes_risk(length) for length in lengths]
"""


def training_code(state: TrainingState) -> str:
    """What the second tab shows, as a program."""
    return f"""{training_setup(state)}
print(tube)
print("risk at the end:", *tube.flow.risk[:, -1].tolist(), tube.limit.risk[0, -1].item())
print("least of any predictor:", *bayes)
"""


def runs_code(folder: str, state: RunsState, length: int | None) -> str:
    """What the third tab reads, as a program; for a head of an audit, its row."""
    opened = (
        "from largeprompt.runs.store import Run\n\nrun = "
        f"Run.open({folder!r})\nprint(run.title, *run.verdicts, sep='\\n')\n"
    )
    if not state.head:
        return opened
    layer, head = state.head.split(".")
    where = f"layer={int(layer)}, head={int(head)}" + (
        f", length={length}" if length is not None else ""
    )
    return (
        f"{opened}head = run.dataset.sel({where})\nprint(float(head.head_score_variance), "
        "float(head.head_affine_error))\n"
    )


def executed(program: str) -> dict[str, Any]:
    """The names that a program of this module defines. Only numbers and words that ``State`` allows
    enter its text.
    """
    names: dict[str, Any] = {}
    exec(program, names)
    return names
