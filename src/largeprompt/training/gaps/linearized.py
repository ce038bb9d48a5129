"""Linear equations along a gradient flow: what a small disturbance of training grows
or shrinks to.
"""

import dataclasses
import math

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.training.dynamics.trajectory import Trajectory, hessians_along, slopes_along

# the two points of an interval at which Hessians are taken
GAUSS = (0.5 - math.sqrt(3) / 6, 0.5 + math.sqrt(3) / 6)


@dataclasses.dataclass(frozen=True, eq=False)
class LinearizedFlow:
    """A gradient flow of one length with the Hessian H along it, on a grid
    that resolves exp(-Ht).
    """

    flow: Trajectory  # on the times asked for
    grid: Tensor  # times (k + 1,); every reported time is one of them
    reported: Tensor  # where in the grid the reported times are, (time,)
    nodes: Tensor  # two Gauss points of every interval, (k, 2)
    gradient: Tensor  # ∇R there, (k, 2, p)
    hessian: Tensor  # H there, (k, 2, p, p)
    reported_hessian: Tensor  # H at the reported times, (time, p, p)

    @property
    def steps(self) -> Tensor:
        """Lengths of the intervals, shape (k, 1, 1)."""
        return self.grid.diff().reshape(-1, 1, 1)

    def response(self, forcing: Tensor) -> Tensor:
        """x on the grid, shape (k + 1, p), for x' = -Hx + f, x(0) = 0, with f at the nodes (k, 2,
        p); Magnus, fourth order.
        """
        pad = torch.nn.functional.pad
        # (k, 2, p + 1, p + 1)
        systems = pad(torch.cat([-self.hessian, forcing.unsqueeze(-1)], -1), (0, 0, 0, 1))
        first, second = systems.unbind(1)
        bracket = second @ first - first @ second
        steps = torch.linalg.matrix_exp(
            self.steps / 2 * (first + second) + math.sqrt(3) / 12 * self.steps**2 * bracket
        )
        state = torch.cat([forcing.new_zeros(forcing.shape[-1]), forcing.new_ones(1)])
        states = [state]
        for step in steps:
            states.append(step @ states[-1])
        return torch.stack(states)[:, :-1]

    def covariance(self, source: Tensor) -> Tensor:
        """P on the grid, shape (..., k + 1, p, p), for P' = -HP - PH + C, P(0) = 0, with C at the
        nodes (..., k, 2, p, p).

        P_{k+1} = F P_k F^T + Q with F by Magnus, and Q_ij = C_ij (1 - e^{-(λ_i+λ_j)h})/(λ_i + λ_j)
        in the eigenbasis of the mean Hessian of the interval: second order in the change of H and C
        over it, whatever the size of λh.
        """
        h, (first, second) = self.steps, self.hessian.unbind(1)
        mean = (first + second) / 2
        whole = torch.linalg.matrix_exp(
            -h * mean + math.sqrt(3) / 12 * h**2 * (second @ first - first @ second)
        )
        values, vectors = torch.linalg.eigh(mean)
        both = (values.unsqueeze(-1) + values.unsqueeze(-2)) * h
        share = torch.where(
            both.abs() < 1e-9, 1 - both / 2, -torch.expm1(-both) / torch.where(both == 0, 1.0, both)
        )
        added = vectors @ (vectors.mT @ source.mean(-3) @ vectors * share * h) @ vectors.mT
        states = [torch.zeros_like(added[..., 0, :, :])]
        for k, step in enumerate(whole):
            states.append(step @ states[-1] @ step.mT + added[..., k, :, :])
        return torch.stack(states, -3)


def linearize(flow: Trajectory, resolution: float) -> LinearizedFlow:
    """Take Hessians along a flow of one length, so closely that an interval times an eigenvalue is
    below ``resolution``.
    """
    resolution = validation.positive("resolution", resolution)
    sharp = hessians_along(flow.objective, flow.parameters.unsqueeze(1)).squeeze(1)
    largest = torch.linalg.eigvalsh(sharp).abs().amax(-1)
    # nodes
    wanted = (
        len(GAUSS)
        * float((flow.times.diff() * torch.maximum(largest[:-1], largest[1:])).sum())
        / resolution
    )
    needed, remedy = (
        wanted * (1000 + 16.0 * sharp[0].numel()),
        "Take a coarser resolution, or a shorter time.",
    )
    validation.affordable(
        "resolution", resolution, needed=needed, seconds=1e-4 * wanted, remedy=remedy
    )
    pieces, reported = [flow.times[:1]], [0]
    for k, step in enumerate(flow.times.diff()):
        count = max(
            1, math.ceil(float(step * torch.maximum(largest[k], largest[k + 1])) / resolution)
        )
        pieces.append(
            flow.times[k] + step * torch.arange(1, count + 1, dtype=torch.float64) / count
        )
        reported.append(reported[-1] + count)
    grid = torch.cat(pieces)
    nodes = grid[:-1, None] + grid.diff()[:, None] * torch.tensor(GAUSS, dtype=torch.float64)
    path = torch.stack([flow.theta(float(time)) for time in nodes.reshape(-1)]).unsqueeze(1)
    gradient, hessian, p = (
        slopes_along(flow.objective, path)[1],
        hessians_along(flow.objective, path),
        path.shape[-1],
    )
    return LinearizedFlow(
        flow,
        grid,
        torch.tensor(reported),
        nodes,
        gradient.reshape(-1, 2, p),
        hessian.reshape(-1, 2, p, p),
        sharp,
    )
