"""Running state of softmax attention over tokens that arrive in parts, and how two states merge."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError


def log_masses(masses: Tensor) -> Tensor:
    """log ω_l, with -1e30 for log 0: finite, so that a part without mass gives no NaN."""
    return torch.where(masses > 0, torch.log(torch.where(masses > 0, masses, 1.0)), -1e30)


@dataclasses.dataclass(frozen=True, eq=False)
class RunningTilt:
    """Tilted moments of the tokens seen so far, for a batch of tilts.

    States of disjoint parts merge exactly, in any order: shards of a prompt, on several machines.

    Attributes
    ----------
    log_mass
        log Σ ω_l e^{u·x_l} for tokens x_l of mass ω_l (one each, unless weighted), shape (...).
    log_total
        log Σ ω_l: the logarithm of the number of tokens when they are not weighted.
    mean
        Σ p_l x_l with p_l ∝ ω_l e^{u·x_l}, shape (..., d).
    covariance
        Σ p_l (x_l - mean)(x_l - mean)^T, shape (..., d, d), or None when it was not asked for.

    Examples
    --------
    >>> tokens = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    >>> parts = [lp.Empirical(part).running([0.5]) for part in tokens.split(2)]
    >>> torch.allclose(parts[0].merge(parts[1]).mean, lp.Empirical(tokens).tilted_mean([0.5]))
    True
    """

    log_mass: Tensor
    log_total: Tensor
    mean: Tensor
    covariance: Tensor | None = None

    @classmethod
    def of(
        cls, u: Tensor, tokens: Tensor, masses: Tensor | None = None, *, covariance: bool = False
    ) -> RunningTilt:
        """State of one part: tilts u (..., n, d), tokens (..., c, d) and masses (..., c)."""
        scores = u @ tokens.mT  # (..., n, c)
        if masses is None:
            log_total = scores.new_full((), math.log(tokens.shape[-2]))
        else:
            scores = scores + log_masses(masses).unsqueeze(-2)
            log_total = torch.logsumexp(log_masses(masses), -1)
        peak = scores.detach().amax(-1, keepdim=True)
        weights = torch.exp(scores - peak)
        mass = weights.sum(-1, keepdim=True)
        log_mass = (peak + torch.log(mass)).squeeze(-1)
        weights = weights / mass  # sums to one whatever the size of the scores
        mean = weights @ tokens
        if not covariance:
            return cls(log_mass, log_total, mean)
        centered = tokens.unsqueeze(-3) - mean.unsqueeze(-2)  # (..., n, c, d)
        return cls(log_mass, log_total, mean, (centered * weights.unsqueeze(-1)).mT @ centered)

    def merge(self, other: RunningTilt) -> RunningTilt:
        """State of the union of two disjoint parts."""
        validation.instance("other", other, RunningTilt, "a RunningTilt, the state of another part")
        if other.mean.shape[-1] != self.mean.shape[-1]:
            given, allowed = (f"tokens in R^{each.mean.shape[-1]}" for each in (other, self))
            raise InvalidArgumentError("other", given, allowed)
        log_mass = torch.logaddexp(self.log_mass, other.log_mass)
        p, q = torch.exp(self.log_mass - log_mass), torch.exp(other.log_mass - log_mass)
        between = other.mean - self.mean
        mean = self.mean + q.unsqueeze(-1) * between
        covariance = None
        if self.covariance is not None and other.covariance is not None:
            spread = between.unsqueeze(-1) * between.unsqueeze(-2)
            p, q = p[..., None, None], q[..., None, None]
            covariance = p * self.covariance + q * other.covariance + p * q * spread
        log_total = torch.logaddexp(self.log_total, other.log_total)
        return RunningTilt(log_mass, log_total, mean, covariance)

    @property
    def cgf(self) -> Tensor:
        """Λ(u) of the tokens seen so far: the log-mean-exp of their scores."""
        return self.log_mass - self.log_total
