"""Running states of attention: every way to cut and merge a prompt gives the moments of the whole,
written out.
"""

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from largeprompt.measures.running import RunningTilt

F = torch.float64
GENERATOR = torch.Generator().manual_seed(0)
TOKENS, MASSES = (
    3 * torch.randn(12, 2, generator=GENERATOR, dtype=F),
    torch.rand(12, generator=GENERATOR, dtype=F),
)
TILTS = 2 * torch.randn(5, 2, generator=GENERATOR, dtype=F)


def written_out(tokens, masses):
    """Log-mean-exp, mean and covariance of tokens with masses, from e^{u·x} itself."""
    weight = masses * torch.exp(TILTS @ tokens.mT)
    share = weight / weight.sum(-1, keepdim=True)
    mean = share @ tokens
    second = torch.einsum("nl,li,lj->nij", share, tokens, tokens)
    return (
        torch.log(weight.sum(-1) / masses.sum()),
        mean,
        second - mean.unsqueeze(-1) * mean.unsqueeze(-2),
    )


@pytest.mark.parametrize("cuts", [(6,), (1, 11), (3, 4, 9), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)])
@pytest.mark.parametrize("weighted", [False, True])
def test_merged_parts_are_the_whole(cuts, weighted):
    masses = MASSES if weighted else None
    parts = [
        RunningTilt.of(TILTS, tokens, mass, covariance=True)
        for tokens, mass in zip(
            TOKENS.tensor_split(cuts),
            MASSES.tensor_split(cuts) if weighted else [None] * (len(cuts) + 1),
            strict=True,
        )
    ]
    expected = written_out(TOKENS, torch.ones(12, dtype=F) if masses is None else masses)
    for order in (parts, parts[::-1]):
        state = order[0]
        for part in order[1:]:
            state = state.merge(part)
        for value, wanted in zip((state.cgf, state.mean, state.covariance), expected, strict=True):
            assert_close(value, wanted, rtol=1e-11, atol=1e-11)


def test_a_part_without_mass_changes_nothing_and_has_gradients():
    nothing = torch.zeros(3, dtype=F, requires_grad=True)
    tilts = TILTS.clone().requires_grad_()
    some = RunningTilt.of(tilts, TOKENS[:4], covariance=True)
    both = some.merge(RunningTilt.of(tilts, TOKENS[4:7], nothing, covariance=True))
    assert_close(both.cgf, some.cgf)
    assert_close(both.covariance, some.covariance)
    gradients = torch.autograd.grad(both.mean.sum() + both.cgf.sum(), (tilts, nothing))
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


def test_covariance_is_there_only_where_both_parts_have_it():
    with_it, without = (RunningTilt.of(TILTS, TOKENS, covariance=asked) for asked in (True, False))
    assert without.covariance is None
    assert with_it.merge(without).covariance is None
    assert with_it.merge(with_it).covariance is not None


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "sharded_prompt.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("sharded_prompt", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same(state, other, tolerance=1e-12):
    for name in ("log_mass", "log_total", "mean", "covariance"):
        assert_close(getattr(state, name), getattr(other, name), rtol=tolerance, atol=tolerance)


def test_shards_over_dask_are_the_prompt_in_one_piece(example, monkeypatch):
    """A bag of five shards, each in tiles, is the state of all tokens at once, in whatever order
    the parts are merged.
    """
    pytest.importorskip("distributed")
    monkeypatch.setattr(example, "TILE", 300)
    parts = [torch.cat(list(example.tiles(shard, 1000))) for shard in range(5)]
    whole = RunningTilt.of(example.QUERIES, torch.cat(parts), covariance=True)
    states = [example.state(shard, 1000) for shard in range(5)]
    for order in (range(5), (3, 1, 4, 0, 2)):
        same(functools.reduce(RunningTilt.merge, [states[shard] for shard in order]), whole)
    sys.modules["sharded_prompt"] = example  # where its functions are found by workers
    try:
        same(example.with_dask(5, 5000), whole)
    finally:
        del sys.modules["sharded_prompt"]


def test_sequence_parallel_attention_in_two_processes(example):
    """Two processes of a gloo group hold a shard each; both end with the output of the whole
    prompt.
    """
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        "0",
        "--standalone",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    printed = subprocess.run(
        [*command, str(EXAMPLE), "torch", "--tokens", "20000"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=200,
        check=True,
    ).stdout
    expected = example.state(0, 10000).merge(example.state(1, 10000)).mean[0]
    outputs = re.findall(r"output +\[(.*)\]", printed)
    assert len(outputs) == 2
    for output in outputs:
        assert_close(
            torch.tensor([float(x) for x in output.split(",")], dtype=F),
            expected,
            rtol=1e-12,
            atol=1e-12,
        )
    assert printed.count("20,000 tokens") == 2
