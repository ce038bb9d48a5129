"""Measures by where their dtype and device come from: a tensor that they hold, or the caller."""

import abc
import dataclasses
from typing import Any, Self

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.base import LibraryMeasure


class TensorMeasure(LibraryMeasure):
    """A measure that holds a tensor, ``_like``, and whose tilts it can draw from."""

    @property
    def dtype(self) -> torch.dtype:
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        return self._like.device

    @property
    @abc.abstractmethod
    def _like(self) -> Tensor: ...

    def _sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor:
        return self._tilt(u)._sample(n, generator)

    @classmethod
    def _trusted(cls, *values: Any) -> Self:
        """Measure with these values of its fields, which need no checks."""
        result = object.__new__(cls)
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        validation.store(result, **dict(zip(names, values, strict=True)))
        return result


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PlacedMeasure(LibraryMeasure):
    """A measure that need not hold a tensor, and is given its dtype and device."""

    dtype: torch.dtype = dataclasses.field(default=torch.float64, kw_only=True)
    device: torch.device = dataclasses.field(default=torch.device("cpu"), kw_only=True)

    def __post_init__(self) -> None:
        # "cuda" is "cuda:0"
        validation.store(self, device=torch.empty(0, device=self.device).device)
        if not isinstance(self.dtype, torch.dtype) or not self.dtype.is_floating_point:
            allowed = "a floating torch dtype, such as torch.float64"
            raise InvalidArgumentError("dtype", validation.text(self.dtype), allowed)


def random_index(weights: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw k with probability ``weights[..., k]``, shape ``(*batch, n)``."""
    cumulative = weights.detach().cumsum(-1).expand(*shape[:-1], -1).contiguous()
    uniform = torch.rand(shape, generator=generator, dtype=weights.dtype, device=weights.device)
    found = torch.searchsorted(cumulative, uniform * cumulative[..., -1:], right=True)
    return found.clamp_max(weights.shape[-1] - 1)
