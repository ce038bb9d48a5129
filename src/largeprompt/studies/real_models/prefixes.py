"""Every head of one causal pass at several prefixes: its statistics, and what small states give."""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.audit import Heads, head_statistics, summary
from largeprompt.audit.findings import derived
from largeprompt.studies.real_models.state import STATES, state_read_out, state_tokens

Array = NDArray[np.float64]
LAST = 8  # queries stand in the last eighth of a prefix: their prompts are nearly as long


def query_places(length: int, count: int) -> list[int]:
    """Return so many positions in the last eighth of a prefix, its last one among them."""
    step = max(1, length // (LAST * count))
    return sorted(length - 1 - step * number for number in range(count))


def state_errors(heads: Heads, output: Tensor, where: Tensor, recent: Sequence[int]) -> Array:
    """√(Σ‖T - T̂‖² / Σ‖T‖²) over the queries for every state, (states, recent, head).

    NaN where the cache is no larger than the state.
    """
    exact = output[:, :, where].to(heads.wide)
    found = []
    for state in STATES:
        moments = state == "moments"
        missed = state_read_out(heads, recent, where, moments=moments) - exact
        error = (missed.square().sum((-1, -2)) / exact.square().sum((-1, -2))).sqrt()[:, 0].cpu()
        sizes = torch.tensor([state_tokens(m, moments, heads.key.shape[-1]) for m in recent])
        found.append(torch.where(sizes[:, None] < heads.key.shape[2], error, torch.nan))
    return torch.stack(found).double().numpy()


class Prefixes:
    """A visitor of all layers that measures the heads of one text at several prefixes."""

    def __init__(self, lengths: Sequence[int], queries: int, recent: Sequence[int] = ()) -> None:
        self.lengths, self.queries, self.recent = lengths, queries, recent
        self.statistics = dict[tuple[int, int], dict[str, Tensor]]()
        self.states = dict[tuple[int, int], Array]()

    def __call__(self, layer: int, heads: Heads, output: Tensor) -> None:
        for length in self.lengths:
            where = torch.tensor(query_places(length, self.queries), device=output.device)
            query, key, value = (x[:, :, :length] for x in (heads.query, heads.key, heads.value))
            some = Heads(query, key, value, None, heads.scale, causal=True)
            self.statistics[length, layer] = head_statistics(some, where)
            if self.recent:
                self.states[length, layer] = state_errors(some, output, where, self.recent)

    def summary(self) -> xr.Dataset:
        """Return the audit's summary of every head: length, layer, head."""
        layers = sorted({layer for _, layer in self.statistics})
        grid = [[self.statistics[length, layer] for layer in layers] for length in self.lengths]
        rows = {
            name: torch.stack([torch.stack([each[name] for each in row], 1) for row in grid])
            for name in grid[0][0]
        }
        heads = range(rows["tokens"].shape[3])
        made = xr.Dataset(
            {
                name: (("length", "text", "layer", "head", "position"), each.numpy())
                for name, each in rows.items()
            },
            coords={"length": list(self.lengths), "layer": layers, "head": heads},
        )
        return summary(derived(made))

    def state_errors(self) -> xr.DataArray:
        """Return the errors of states of constant size by length, state, recent, layer and head."""
        layers = sorted({layer for _, layer in self.states})
        found = [[self.states[n, layer] for layer in layers] for n in self.lengths]
        values = np.moveaxis(np.array(found), 1, 3)
        return xr.DataArray(values, dims=("length", "state", "recent", "layer", "head"))
