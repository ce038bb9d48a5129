"""Attention over a prompt larger than one machine: each part gives a small state, and states merge
exactly, in any order.

    python sharded_prompt.py stream --tokens 1e9 # one process, tile by tile python
    sharded_prompt.py dask --tokens 1e8 # a Dask bag of shards; --scheduler tcp://... for a cluster
    that is there torchrun --nproc-per-node 2 sharded_prompt.py torch --tokens 1e8 # each process
    holds its own shard

Tokens are drawn from a Gaussian law here, so that the answer is known; yours would be read from
where they lie.
"""

import argparse
import functools
import resource
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

import largeprompt as lp
from largeprompt.measures import RunningTilt

TILE = 2**18  # tokens that are in memory at once
LAW = lp.Gaussian(
    torch.linspace(-0.5, 0.5, 4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
)
QUERIES = torch.tensor(
    [[0.6, -0.2, 0.1, 0.4], [0.0, 0.0, 0.0, 0.0], [-0.3, 0.5, 0.9, -0.1]], dtype=torch.float64
)


def tiles(shard: int, tokens: int) -> Iterator[Tensor]:
    """The tokens of a shard, some at a time."""
    generator = torch.Generator().manual_seed(shard)
    for start in range(0, tokens, TILE):
        yield LAW.sample(min(TILE, tokens - start), generator)


def state(shard: int, tokens: int) -> RunningTilt:
    """What attention made of a shard: log-mass, mean and covariance for each query, whatever the
    number of tokens.
    """
    parts = (lp.Empirical(tile).running(QUERIES, covariance=True) for tile in tiles(shard, tokens))
    return functools.reduce(RunningTilt.merge, parts)


def with_dask(shards: int, tokens: int, scheduler: str | None = None) -> RunningTilt:
    """The same over a Dask bag: shards are read where the workers are, and only states travel."""
    import dask.bag
    import distributed

    with distributed.Client(
        scheduler or distributed.LocalCluster(processes=False, dashboard_address="127.0.0.1:0")
    ):
        bag = dask.bag.from_sequence(range(shards), npartitions=shards)
        return bag.map(state, tokens=tokens // shards).fold(RunningTilt.merge).compute()


def all_merged(own: RunningTilt) -> RunningTilt:
    """The state of the whole prompt, in every process of the group: sequence-parallel attention."""
    import torch.distributed as group

    # one small tensor for each process
    flat = torch.cat([own.log_mass.unsqueeze(-1), own.mean, own.covariance.flatten(-2)], -1)
    theirs = [torch.empty_like(flat) for _ in range(group.get_world_size())]
    totals = [torch.empty_like(own.log_total) for _ in theirs]
    group.all_gather(theirs, flat)
    group.all_gather(totals, own.log_total)
    dim = own.mean.shape[-1]
    states = [
        RunningTilt(
            each[..., 0],
            total,
            each[..., 1 : dim + 1],
            each[..., dim + 1 :].unflatten(-1, (dim, dim)),
        )
        for each, total in zip(theirs, totals, strict=True)
    ]
    return functools.reduce(RunningTilt.merge, states)


def with_torch(tokens: int) -> RunningTilt:
    """Each process of the group attends over its own shard, and merges."""
    import torch.distributed as group

    group.init_process_group("gloo")
    try:
        return all_merged(state(group.get_rank(), tokens // group.get_world_size()))
    finally:
        group.destroy_process_group()


def main() -> None:
    """Attend over so many tokens, and say how far that is from the law, and what memory it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", choices=["stream", "dask", "torch"])
    parser.add_argument("--tokens", type=float, default=1e8)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--scheduler")
    given = parser.parse_args()
    tokens = int(given.tokens)
    if given.way == "dask":
        found = with_dask(given.shards, tokens, given.scheduler)
    else:
        found = with_torch(tokens) if given.way == "torch" else state(0, tokens)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    limit = LAW.tilted_mean(QUERIES)
    lines = [
        f"{round(found.log_total.exp().item()):,} tokens, {memory:.0f} MB at most",
        f"output   {found.mean[0].tolist()}",
        f"limit    {limit[0].tolist()}",
        f"largest distance {(found.mean - limit).abs().max():.1e}",
    ]
    # in one piece: processes of a group share the terminal
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
