"""Hypothesis strategies for the arguments of the library (extra ``dev``)."""

import math

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor


def vectors(dim: int, *, size: float = 2.0, shape: tuple[int, ...] = ()) -> SearchStrategy[Tensor]:
    """Tensors of shape ``(*shape, dim)`` with entries in [-size, size]."""
    count = math.prod(shape) * dim
    entries = st.lists(
        st.floats(-size, size, allow_nan=False, width=64), min_size=count, max_size=count
    )
    return entries.map(
        lambda values: torch.tensor(values, dtype=torch.float64).reshape(*shape, dim)
    )


def covariances(dim: int, *, size: float = 1.5) -> SearchStrategy[Tensor]:
    """Positive semidefinite matrices R R^T of shape (dim, dim), often singular."""
    return vectors(dim, size=size, shape=(dim,)).map(lambda root: root @ root.mT)


def probabilities(count: int) -> SearchStrategy[Tensor]:
    """Weights of shape (count,) that sum to one, some of them possibly zero."""
    entries = st.lists(st.integers(0, 20), min_size=count, max_size=count).filter(any)
    return entries.map(lambda values: torch.tensor(values, dtype=torch.float64) / sum(values))
