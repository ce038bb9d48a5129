"""The calls that make what the explorer shows: run to make it, and shown as they were run."""

from collections.abc import Mapping
from typing import Any

from largeprompt.explore.state import LENGTHS, LawState, ScalingState, TrainingState

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
DIRECTIONS = {"strong": "eye[0]", "weak": "eye[-1]", "all": "eye.sum(0) / dim**0.5"}


def law_setup(state: LawState) -> str:
    """Layer, law of the tokens and query."""
    return f"""\
import torch
import largeprompt as lp

dim, eye = {state.dim}, torch.eye({state.dim}, dtype=torch.float64)
spectrum = torch.arange(1, dim + 1, dtype=torch.float64) ** -{state.decay:g}
spectrum *= dim / spectrum.sum()
root = torch.diag(spectrum.sqrt())
mu = {TOKENS[state.law]}
attention = lp.SoftmaxAttention(eye, eye)
z = {state.strength:g} * {DIRECTIONS[state.direction]} / spectrum.sqrt()
"""


def law_code(state: LawState) -> str:
    """The first tab as a program: the set-up, then one call for each picture."""
    return f"""{law_setup(state)}
law = lp.finite_prompt(attention, mu, z, {state.length})  # exact, at any length
limit = attention(mu, z)  # the infinite prompt
matrix, offset = lp.affine_limit(attention, mu)
affine = matrix @ z + offset  # what mean and covariance alone would give
print(law)
print(lp.certificate(attention, mu, z, {state.length}))
print(lp.prompt_length(attention, mu, z, tolerance={state.tolerance:g}))
lp.finite_prompt(attention, mu, z, {list(LENGTHS)}).plot()
"""


def training_setup(state: TrainingState, fine: bool = True) -> str:
    """Flows at several lengths and at infinity, their distance, and the Bayes risks."""
    kind = {"softmax": "SoftmaxAttention", "linear": "LinearAttention"}[state.attention]
    points, tolerance = (19, 1e-4) if fine else (7, 1e-2)
    return f"""\
import numpy as np
import torch
import largeprompt as lp

dim, eye = {state.dim}, torch.eye({state.dim}, dtype=torch.float64)
task = lp.LinearRegression(eye, eye / dim, noise_variance={state.noise:g})
U = {state.start:g} * torch.block_diag(eye, 0 * eye[:1, :1])
V = {state.start:g} * torch.eye(dim + 1, dtype=torch.float64)[-1:]
attention = lp.{kind}(U, V)
lengths, until = [10, 100, 1000], {state.until:g}
times = np.append(0.0, np.geomspace(until / 300, until, {points}))
options = {{"parametrization": "block", "times": times, "tolerance": {tolerance:g}}}
tube = lp.training.tube(task, attention, lengths, until=until, **options)
bayes = [task.bayes_risk(length) for length in lengths]
"""


def training_code(state: TrainingState) -> str:
    """The second tab as a program."""
    return f"""{training_setup(state)}
print(tube)
print("risk at the end:", *tube.flow.risk[:, -1].tolist(), tube.limit.risk[0, -1].item())
print("least of any predictor:", *bayes)
tube.plot()
"""


def scaling_code(state: ScalingState) -> str:
    """The third tab as a program."""
    return f"""\
import matplotlib.pyplot as plt
import numpy as np
import largeprompt as lp
from largeprompt.planning import log_n_scaling, yarn_scaling

trained, longer, variance = {state.trained}, {state.trained * state.times}, {state.variance:g}
factor = lp.length_scaling(longer, trained, variance)
print("exact, log-n, YaRN:", factor, log_n_scaling(longer, trained), yarn_scaling(longer, trained))
print("tokens read:", lp.output_scale([trained, longer], variance) ** -2)
variances = np.geomspace(0.5, 30, 60)
plt.semilogx(variances, lp.length_scaling(longer, trained, variances))
"""


def runs_code(folder: str, where: Mapping[str, int]) -> str:
    """What the last tab reads, as a program; of an audit, one head and the table of all."""
    program = f"""\
from largeprompt.runs.store import Run

run = Run.open({folder!r})
print(run.title, *run.verdicts, sep='\\n')
"""
    if not where:
        return program
    place = ", ".join(f"{name}={number:d}" for name, number in where.items())
    return f"""{program}
from largeprompt.audit import table

print(table(run.dataset))
head = run.dataset.sel({place})
print(float(head.head_score_variance), float(head.head_affine_error))
"""


def executed(program: str) -> dict[str, Any]:
    """Return the names that a program of this module defines.

    Only numbers and words that ``State`` allows enter its text.
    """
    names: dict[str, Any] = {}
    exec(program, names)
    return names
