"""Nested prompts by drawing every token: one stream of tokens for each replica, of which every
length reads a prefix.

A stream is drawn in cells: a block of replicas by a block of tokens. The shape of a cell depends
only on the longest prompt, on the dimension and on the kind of device. Each cell has its own
generator, seeded by (seed of the call, block of replicas, block of tokens). So the tokens of a
replica do not depend on the number of replicas, on the recorded lengths, or on the number of
threads.

Gaussian tokens x = m + Rξ are never made: a tilt by u reads ξ with the tilt R^T u, and the softmax
average of x is m + R times that of ξ.
"""

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from largeprompt.measures import Gaussian, Measure, RunningTilt

# random numbers in a cell: what stays in the cache, and what keeps a GPU busy
CELL_SCALARS = {"cpu": 2**20, "cuda": 2**28}
CELL_REPLICAS = 1024  # so that few replicas of a short prompt do not cost a whole cell
# scores (and centered tokens, for the Jacobian) held while a cell is read
READ_SCALARS = {"cpu": 2**20, "cuda": 2**26}


def draw_seed(generator: torch.Generator) -> int:
    """Draw the 63-bit seed from which all randomness of one call follows."""
    return int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device))


def keyed_generator(device: torch.device, *key: int) -> torch.Generator:
    """Generator that depends only on the key.

    PyTorch's generator on the CPU keeps 32 bits of its seed, so that of n cells about n²/2³³ pairs
    hold the same numbers.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator(device=device).manual_seed(int.from_bytes(digest, "little"))


@dataclasses.dataclass(frozen=True)
class Grid:
    """How prompts of ``length`` tokens, each of ``width`` numbers, are cut into cells.

    ``extra`` counts the numbers that a replica needs in addition to those of its tokens; ``device``
    is the type of the device.
    """

    length: int
    width: int
    extra: int = 0
    device: str = "cpu"

    @property
    def scalars(self) -> int:
        """Numbers in a cell, about."""
        return CELL_SCALARS.get(self.device, CELL_SCALARS["cuda"])

    @property
    def cells(self) -> int:
        """Blocks of tokens in a prompt."""
        return -(-self.length // max(1, self.scalars // self.width))

    @property
    def tokens(self) -> int:
        """Tokens in a block: all blocks but the last have this size."""
        return -(-self.length // self.cells)

    @property
    def replicas(self) -> int:
        """Replicas in a block, a power of two: a block is always drawn whole, and round numbers of
        replicas fill their last one.
        """
        most = max(1, min(CELL_REPLICAS, self.scalars // max(self.tokens * self.width, self.extra)))
        return 1 << (most.bit_length() - 1)

    def span(self, cell: int) -> tuple[int, int]:
        """First token of a block, and the first one after it."""
        return cell * self.tokens, min((cell + 1) * self.tokens, self.length)

    def blocks(self, replicas: int) -> Iterator[tuple[int, slice]]:
        """Blocks that hold the first ``replicas`` replicas: number of the block, and the replicas
        that it gives.
        """
        for block in range(-(-replicas // self.replicas)):
            yield block, slice(block * self.replicas, min((block + 1) * self.replicas, replicas))


@dataclasses.dataclass(frozen=True)
class TokenStream:
    """The tokens of every replica, drawn when asked for."""

    mu: Measure
    length: int
    seed: int

    @property
    def grid(self) -> Grid:
        """Cells that the stream is drawn in."""
        return Grid(self.length, self.mu.dim, device=self.mu.device.type)

    @property
    def root(self) -> Tensor | None:
        """R of Gaussian tokens m + Rξ, of which ξ is drawn; None for other laws."""
        return self.mu._root if isinstance(self.mu, Gaussian) else None

    def cell(self, block: int, cell: int) -> Tensor:
        """Tokens of one cell, for Gaussian ones their ξ, shape (replicas of a block, tokens of the
        cell, d).
        """
        start, stop = self.grid.span(cell)
        shape, generator = (
            (self.grid.replicas, stop - start, self.mu.dim),
            keyed_generator(self.mu.device, self.seed, block, cell),
        )
        if self.root is not None:
            return torch.randn(
                shape, generator=generator, dtype=self.mu.dtype, device=self.mu.device
            )
        return self.mu.sample(math.prod(shape[:2]), generator).reshape(shape)

    def moments(
        self, u: Tensor, lengths: Sequence[int], block: int, rows: int, *, covariance: bool
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Softmax averages (rows, n, d) and covariances (rows, n, d, d) of what ``cell`` gives,
        under tilts u (n, d).

        At each length in turn, for the first ``rows`` replicas of a block; no covariances unless
        they are asked for.
        """
        held = rows * self.grid.tokens * (self.mu.dim if covariance else 1)
        tilts = u.split(max(1, READ_SCALARS.get(u.device.type, READ_SCALARS["cuda"]) // held))
        states: list[RunningTilt] = []
        for cell in range(self.grid.cells):
            start, stop = self.grid.span(cell)
            tokens = self.cell(block, cell)[:rows]
            bounds = [start, *(length for length in lengths if start < length < stop), stop]
            for first, last in itertools.pairwise(bounds):
                part = tokens[:, first - start : last - start]
                read = [RunningTilt.of(tilt, part, covariance=covariance) for tilt in tilts]
                states = (
                    [old.merge(new) for old, new in zip(states, read, strict=True)]
                    if states
                    else read
                )
                if last in lengths:
                    spread = [state.covariance for state in states if state.covariance is not None]
                    yield (
                        torch.cat([state.mean for state in states], 1),
                        torch.cat(spread, 1) if spread else None,
                    )


def side_by_side(
    work: Callable[[int, slice], None], blocks: Iterable[tuple[int, slice]], device: torch.device
) -> None:
    """Do the work of every block; on a CPU as many at a time as PyTorch has threads, since one
    tensor is drawn by one thread.
    """
    pending, threads = list(blocks), torch.get_num_threads()
    if device.type != "cpu" or min(threads, len(pending)) == 1:
        for block in pending:
            work(*block)
        return
    alone = torch.no_grad()(work)  # the mode of gradients belongs to a thread
    pool = ThreadPoolExecutor(threads)
    try:
        list(pool.map(lambda block: alone(*block), pending))
    finally:
        pool.shutdown(cancel_futures=True)


def sample_full(
    u: Tensor,
    values: Tensor,
    mu: Measure,
    lengths: Sequence[int],
    replicas: int,
    seed: int,
    *,
    jacobian: bool,
) -> tuple[Tensor, Tensor | None]:
    """Outputs V Σ w_l z_l and, if asked for, V C_L, for every length and replica.

    Parameters
    ----------
    u
        Tilts, shape ``(*heads, *queries, d)``; the heads may be those of U alone.
    values
        V, shape ``(*heads, 1.., o, d)``.

    Returns
    -------
    tuple
        Shapes ``(n_lengths, replicas, *heads, *queries, o)`` and ``(n_lengths, replicas, *heads,
        *queries, o, d)``.
    """
    batch = np.broadcast_shapes(u.shape[:-1], values.shape[:-2])
    # heads that V has and U has not come before those of U
    missing = (1,) * (len(batch) - u.dim() + 1)
    shape = (len(lengths), replicas, *batch, values.shape[-2])
    outputs = u.new_empty(shape)
    jacobians = u.new_empty((*shape, u.shape[-1])) if jacobian else None
    stream = TokenStream(mu, lengths[-1], seed)
    tilts, middle = u.reshape(math.prod(u.shape[:-1]), u.shape[-1]), outputs.new_zeros(())
    if stream.root is not None:
        tilts, middle = tilts @ stream.root, (values @ mu.mean.unsqueeze(-1)).squeeze(-1)
        values = values @ stream.root

    def read(block: int, rows: slice) -> None:
        count = rows.stop - rows.start
        for i, (mean, covariance) in enumerate(
            stream.moments(tilts, lengths, block, count, covariance=jacobian)
        ):
            mean = mean.reshape(count, *missing, *u.shape)
            outputs[i, rows] = (values @ mean.unsqueeze(-1)).squeeze(-1) + middle
            if jacobians is not None and covariance is not None:
                spread = values @ covariance.reshape(count, *missing, *u.shape, u.shape[-1])
                jacobians[i, rows] = spread if stream.root is None else spread @ stream.root.mT

    side_by_side(read, stream.grid.blocks(replicas), u.device)
    return outputs, jacobians
