"""Every head of one causal pass at several prefixes."""

from collections.abc import Sequence

import torch
import xarray as xr
from torch import Tensor

from largeprompt.audit import Heads, head_statistics, summary
from largeprompt.audit.findings import derived

LAST = 8  # queries stand in the last eighth of a prefix: their prompts are nearly as long


def query_places(length: int, count: int) -> list[int]:
    """Return so many positions in the last eighth of a prefix, its last one among them."""
    step = max(1, length // (LAST * count))
    return sorted(length - 1 - step * number for number in range(count))


class Prefixes:
    """A visitor of all layers that measures the heads of one text at several prefixes."""

    def __init__(self, lengths: Sequence[int], queries: int) -> None:
        self.lengths, self.queries = lengths, queries
        self.statistics = dict[tuple[int, int], dict[str, Tensor]]()

    def __call__(self, layer: int, heads: Heads, output: Tensor) -> None:
        for length in self.lengths:
            where = torch.tensor(query_places(length, self.queries), device=output.device)
            query, key, value = (x[:, :, :length] for x in (heads.query, heads.key, heads.value))
            some = Heads(query, key, value, None, heads.scale, causal=True)
            self.statistics[length, layer] = head_statistics(some, where)

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
