"""Ways to parametrize a layer: what the gradient flow moves, and how U and V follow."""

from __future__ import annotations

import abc
import dataclasses
import math

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.risk.blocks import block_layer


class Parametrization(abc.ABC):
    """A map from a flat vector θ, shape (run, p), to U (run, D, D) and V (run, o, D)."""

    @abc.abstractmethod
    def start(self, attention: Attention) -> Tensor:
        """θ at which the layer is ``attention``, shape (p,)."""

    @abc.abstractmethod
    def layer(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """U and V at θ, differentiable."""

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Name of each entry of θ."""

    def conserved(self, theta: Tensor) -> Tensor:
        """What the infinite-prompt flow conserves, shape (run,): ‖V‖² - ‖U‖_F², (dyn.1-4) of
        docs/mathematics/dynamics.md.
        """
        U, V = self.layer(theta)
        return V.square().sum(dim=(-2, -1)) - U.square().sum(dim=(-2, -1))


def _entries(name: str, *shape: int) -> list[str]:
    indices = (
        torch.cartesian_prod(*(torch.arange(size) for size in shape))
        .reshape(-1, len(shape))
        .tolist()
    )
    return [f"{name}[{', '.join(map(str, index))}]" for index in indices]


@dataclasses.dataclass(frozen=True)
class Full(Parametrization):
    """θ = (U, V), all entries free."""

    dim: int
    out: int

    def start(self, attention: Attention) -> Tensor:
        return torch.cat([attention.U.reshape(-1), attention.V.reshape(-1)]).to(torch.float64)

    def layer(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        U, V = theta.split([self.dim**2, self.out * self.dim], dim=-1)
        return U.reshape(-1, self.dim, self.dim), V.reshape(-1, self.out, self.dim)

    def names(self) -> list[str]:
        return _entries("U", self.dim, self.dim) + _entries("V", self.out, self.dim)


@dataclasses.dataclass(frozen=True)
class Block(Parametrization):
    """θ = (A, b) with U = [[A, 0], [0, 0]] and V = (0, b): the family of the paper's Theorem 5.1,
    which the flow preserves.
    """

    dim: int  # d, the inputs alone

    def start(self, attention: Attention) -> Tensor:
        d, U, V = self.dim, attention.U, attention.V
        outside = max(
            float(U[d].abs().max()), float(U[:, d].abs().max()), float(V[0, :d].abs().max())
        )
        if outside > 0:
            given = f"an entry {outside:.3g} outside the blocks"
            raise InvalidArgumentError(
                "attention",
                given,
                "U = [[A, 0], [0, 0]], V = (0, b)",
                "Use the full parametrization.",
            )
        return torch.cat([U[:d, :d].reshape(-1), V[0, d:]]).to(torch.float64)

    def split(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """A (run, d, d) and b (run,)."""
        return theta[..., :-1].reshape(-1, self.dim, self.dim), theta[..., -1]

    def layer(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return block_layer(*self.split(theta))

    def names(self) -> list[str]:
        return [*_entries("A", self.dim, self.dim), "b"]


@dataclasses.dataclass(frozen=True, eq=False)
class Factorized(Parametrization):
    """θ = (K, Q, V, p): scores <Kx, Qz>/√width, values Vx, answer p·(Vx), each trained by itself,
    as in the authors' experiment.

    Parameters
    ----------
    K, Q
        Shape (width, D).
    V
        Shape (m, D).
    readout
        p, shape (o, m).
    """

    K: Tensor
    Q: Tensor
    V: Tensor
    readout: Tensor

    def __post_init__(self) -> None:
        K = validation.last_dimensions("K", validation.tensor("K", self.K), ("width", "D"))
        Q = validation.last_dimensions(
            "Q", validation.tensor("Q", self.Q, like=K), tuple(K.shape), ", as K"
        )
        V = validation.last_dimensions(
            "V", validation.tensor("V", self.V, like=K), ("m", K.shape[-1]), ", on the tokens of K"
        )
        readout = validation.tensor("readout", self.readout, like=K)
        validation.last_dimensions("readout", readout, ("o", V.shape[-2]), ", on the values")
        for name, value in (("K", K), ("Q", Q), ("V", V), ("readout", readout)):
            object.__setattr__(self, name, value.detach().to(torch.float64))

    @classmethod
    def default(cls, dim: int, generator: validation.Randomness) -> Factorized:
        """PyTorch's default initialization of linear layers, uniform on ±1/√D, for K, Q, V (D, D)
        and a read-out (1, D).
        """
        dim = validation.integer("dim", dim)
        validation.affordable("dim", dim, needed=24.0 * dim**2)
        bound = 1 / math.sqrt(dim)
        if not isinstance(generator, torch.Generator):
            generator = validation.generator(generator, torch.device("cpu"))

        def draw(rows: int) -> Tensor:
            uniform = torch.rand(
                rows, dim, generator=generator, dtype=torch.float64, device=generator.device
            )
            return bound * (2 * uniform.cpu() - 1)

        return cls(draw(dim), draw(dim), draw(dim), draw(1))

    @property
    def _parts(self) -> dict[str, Tensor]:
        return {"K": self.K, "Q": self.Q, "V": self.V, "readout": self.readout}

    def start(self, attention: Attention | None = None) -> Tensor:
        return torch.cat([part.reshape(-1) for part in self._parts.values()])

    def layer(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        parts = zip(
            theta.split([part.numel() for part in self._parts.values()], dim=-1),
            self._parts.values(),
            strict=True,
        )
        K, Q, V, readout = (flat.reshape(-1, *part.shape) for flat, part in parts)
        return K.mT @ Q / math.sqrt(self.K.shape[0]), readout @ V

    def names(self) -> list[str]:
        return [
            entry for name, part in self._parts.items() for entry in _entries(name, *part.shape)
        ]

    def conserved(self, theta: Tensor) -> Tensor:
        """‖K‖² - ‖Q‖², which the flow conserves at every length."""
        size = self.K.numel()
        return theta[..., :size].square().sum(-1) - theta[..., size : 2 * size].square().sum(-1)
