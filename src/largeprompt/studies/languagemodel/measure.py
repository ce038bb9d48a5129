"""Every head of one causal pass at several prefixes: its audit, the autocorrelation of its scores,
what small states give.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
from largeprompt.audit import Heads, head_statistics
from largeprompt.audit.findings import derived
from largeprompt.measures import Gaussian
from largeprompt.planning.dependent import effective_length
from largeprompt.studies.languagemodel.shape import subset_errors
from largeprompt.studies.languagemodel.state import state_read_out, state_tokens

Array = NDArray[np.float64]
FIRST = ("read", "left out")  # the first token, on which many heads put most of their weight
SPAN = 8  # queries stand in the last eighth of a prefix
LAGS = 128  # of the autocorrelation at most
TRIED = 32  # queries that choose heads


def query_places(length: int, count: int) -> list[int]:
    """So many positions in the last eighth of a prefix, its last one among them."""
    step = max(1, length // (SPAN * count))
    return sorted(length - 1 - step * number for number in range(count))


def prefix(heads: Heads, length: int, start: int = 0) -> Heads:
    """Queries, keys and values of a prefix, without its first ``start`` tokens."""
    query, key, value = (each[:, :, start:length] for each in (heads.query, heads.key, heads.value))
    return Heads(query, key, value, None, heads.scale, causal=True)


def state_errors(
    heads: Heads,
    output: Tensor,
    where: Tensor,
    recent: Sequence[int],
    components: Sequence[int],
    sinks: int,
) -> Array:
    """√(Σ‖T - T̂‖² / Σ‖T‖²) over the queries for every state, (components, recent, head); NaN where
    the cache is no larger.
    """
    exact = output[:, :, where].to(heads.wide)
    found = []
    for count in components:
        missed = state_read_out(heads, recent, where, components=count, sinks=sinks) - exact
        error = (missed.square().sum((-1, -2)) / exact.square().sum((-1, -2))).sqrt()[:, 0].cpu()
        sizes = [
            state_tokens(each, count, sinks, heads.key.shape[-1], heads.value.shape[-1])
            for each in recent
        ]
        smaller = torch.tensor([size < heads.key.shape[2] for size in sizes])[:, None]
        found.append(torch.where(smaller, error, torch.nan))
    return torch.stack(found).double().numpy()


class Trial:
    """A visitor of all layers that finds the errors by which heads are chosen, at queries in the
    second half of a text.
    """

    def __init__(self, recent: Sequence[int], components: Sequence[int], sinks: int) -> None:
        self.recent, self.components, self.sinks = recent, components, sinks
        # (head,) and (components, recent, head) of each layer
        self.affine, self.states = dict[int, Array](), dict[int, Array]()

    def __call__(self, layer: int, heads: Heads, output: Tensor) -> None:
        length = heads.query.shape[2]
        where = torch.linspace(
            length // 2, length - 1, min(TRIED, length // 2), device=output.device
        ).long()
        found = head_statistics(heads, where)
        self.affine[layer] = (
            (found["affine_error"] / found["output"]).sqrt()[0].median(-1).values.numpy()
        )
        self.states[layer] = state_errors(
            heads, output, where, self.recent, self.components, self.sinks
        )


class Prefixes:
    """A visitor of all layers; its numbers are those of one text."""

    def __init__(
        self,
        lengths: Sequence[int],
        queries: int,
        recent: Sequence[int],
        components: Sequence[int],
        sinks: int,
    ) -> None:
        self.lengths, self.queries, self.sinks = lengths, queries, sinks
        self.recent, self.components = recent, components
        self.audits = dict[tuple[str, int, int], dict[str, Tensor]]()
        self.memory = dict[tuple[int, int], Array]()
        self.states = dict[tuple[int, int], Array]()

    def __call__(self, layer: int, heads: Heads, output: Tensor) -> None:
        for length in self.lengths:
            places = torch.tensor(query_places(length, self.queries), device=output.device)
            for start, first in enumerate(FIRST):
                some = prefix(heads, length, start)
                self.audits[first, length, layer] = head_statistics(
                    some, places - start
                ) | subset_errors(some, places - start)
            self.memory[length, layer] = autocorrelation(prefix(heads, length, 1), places - 1)
            some = prefix(heads, length)
            self.states[length, layer] = state_errors(
                some, output, places, self.recent, self.components, self.sinks
            )

    def audit(self, first: str) -> xr.Dataset:
        """Dimensions length, text (this one), layer, head, position, as :func:`audit_model` has
        them; NaN where there is none.
        """
        layers, start = sorted({layer for _, _, layer in self.audits}), FIRST.index(first)
        grid = [[self.audits[first, length, layer] for layer in layers] for length in self.lengths]
        missing = torch.full_like(grid[0][0]["tokens"], torch.nan)
        rows = {
            name: torch.stack(
                [torch.stack([each.get(name, missing) for each in row], 1) for row in grid]
            )
            for name in grid[-1][-1]  # shorter prefixes have fewer subsets
        }
        dims = ("length", "text", "layer", "head", "position")
        lengths = [length - start for length in self.lengths]
        coordinates = {"length": lengths, "layer": layers, "head": range(missing.shape[1])}
        made = xr.Dataset(
            {name: (dims, each.numpy()) for name, each in rows.items()}, coords=coordinates
        )
        drawn = [name for name in rows if name.startswith("subset_")]
        return derived(made.drop_vars(drawn)).merge(made[drawn])


def autocorrelation(heads: Heads, positions: Tensor) -> Array:
    """c_1, c_2, ... of each head's scores along the keys, mean over the queries: shape (head,
    lags), positive definite.

    Sums over all pairs of keys are divided by the number of keys and tapered linearly, which keeps
    a process possible.
    """
    lags = min(LAGS, int(positions.min()) // 4)
    total = torch.zeros(heads.count, lags + 1, dtype=torch.float64)
    for _, rows in heads.rows(positions):
        scores = rows.centered()[1].double()  # 0 for keys that may not be read
        power = torch.fft.rfft(scores, 2 * scores.shape[-1]).abs().square()
        total += torch.fft.irfft(power)[..., : lags + 1].sum((0, 2)).cpu()
    taper = 1 - torch.arange(1, lags + 1) / (lags + 1)
    found: Array = (total[:, 1:] / total[:, :1] * taper).clamp(-1.0, 1.0).numpy()
    return found


def effective_share(
    number: float, variance: float, tilt: float, spread: float, correlation: Array
) -> float:
    """Effective over real length of keys with this score variance σ², ‖Cov(v, s)‖², tr Cov(v) and
    autocorrelation.

    Asked of :func:`~largeprompt.planning.effective_length` for a layer of two coordinates with
    these moments.
    """
    if not np.isfinite([number, variance, tilt, spread]).all() or variance <= 0:
        return math.nan
    along = min(tilt / variance, spread)
    value = torch.diag(torch.tensor([along, spread - along], dtype=torch.float64).sqrt())
    eye = torch.eye(2, dtype=torch.float64)
    z = torch.tensor([math.sqrt(variance), 0.0], dtype=torch.float64)
    law = Gaussian(torch.zeros(2, dtype=torch.float64), eye)
    return float(
        effective_length(SoftmaxAttention(eye, value), law, z, round(number), correlation.tolist())
    ) / round(number)
