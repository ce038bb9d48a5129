"""The fused sampler: its plain twin against the exact law everywhere, its kernel against the twin where Triton is."""

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.sampling import fused, reduced
from largeprompt.testing import assert_sample_mean

FALSE_ALARM = 1e-9
EYE = torch.eye(2, dtype=torch.float64)
GAUSSIAN = lp.Gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 0.5]])
MIXTURE = lp.GaussianMixture([0.3, 0.7], [[1.0, 0.0], [-0.5, 0.4]], [[[0.6, 0.1], [0.1, 0.3]], [[0.2, 0.0], [0.0, 0.9]]])


def outputs(mu, lengths, replicas, seed=0, u=(0.8, -0.5)):
    tilt = torch.tensor([u], dtype=torch.float64)
    return fused.sample_fused(tilt, EYE, mu, lengths, replicas, seed)[:, :, 0]


@pytest.mark.parametrize("mu", [GAUSSIAN, MIXTURE])
def test_drawn_prompts_have_the_exact_law(mu):
    """Mean and mean square of T_L - limit, at two nested lengths; four comparisons for each law."""
    attention, z = lp.SoftmaxAttention(EYE, EYE), [0.8, -0.5]
    drawn = outputs(mu, [7, 34], 6000)
    for i, length in enumerate((7, 34)):
        law = lp.finite_prompt(attention, mu, z, length)
        assert_sample_mean(drawn[i], law.mean, false_alarm=FALSE_ALARM)
        squares = (drawn[i] - law.limit).square().sum(-1)
        assert_sample_mean(squares, law.mse, false_alarm=FALSE_ALARM)


def test_nested_lengths_are_prefixes_of_one_prompt():
    """E T_m·(T_L - E T_L) is larger than zero for nested prompts: against plain tokens drawn one by one."""
    generator = torch.Generator().manual_seed(3)
    attention = lp.SoftmaxAttention(EYE, EYE)
    other = lp.sample_prompts(attention, GAUSSIAN, [0.8, -0.5], [20, 33], 6000, generator).outputs
    drawn = outputs(GAUSSIAN, [20, 33], 6000, seed=9)
    means = [lp.finite_prompt(attention, GAUSSIAN, [0.8, -0.5], length).mean for length in (20, 33)]
    products = [((x[0] - means[0]) * (x[1] - means[1])).sum(-1) for x in (drawn, other)]
    error = math.hypot(*(float(x.std()) / math.sqrt(len(x)) for x in products))
    assert abs(float(products[0].mean() - products[1].mean())) < 6.2 * error  # two-sided, 6e-10
    assert float(products[0].mean()) > 10 * error


@pytest.mark.parametrize("mu", [GAUSSIAN, MIXTURE])
def test_numbers_do_not_depend_on_what_else_is_asked_for(mu):
    """More lengths, more replicas: the same prompts, up to rounding."""
    few = outputs(mu, [40_000], 3)
    assert_close(outputs(mu, [1, 33, 1024, 1025, 32_768, 33_000, 40_000], 3)[-1], few[0], rtol=1e-12, atol=1e-12)
    assert_close(outputs(mu, [40_000], 5)[:, :3], few, rtol=0.0, atol=0.0)
    assert bool((outputs(mu, [40_000], 3, seed=1) != few).all())


def test_segments_are_items_and_the_parts_of_those_that_a_length_cuts():
    cuts = fused.Cuts.of(0, (9, fused.ITEM, 2 * fused.ITEM + 1), torch.device("cpu"))
    parts = fused.ITEM // fused.PART
    assert cuts.whole.tolist() == [0, 1, 3]
    assert cuts.parts.tolist() == [3, -1, -1]
    assert cuts.starts.tolist() == [0, fused.ITEM, 2 * fused.ITEM, *range(0, fused.ITEM, fused.PART)]
    assert (cuts.stops - cuts.starts).tolist() == [fused.ITEM, fused.ITEM, 1] + parts * [fused.PART]
    short = fused.Cuts.of(0, (5, 1500), torch.device("cpu"))  # nothing is read beyond the longest
    assert (short.stops - short.starts).tolist() == [1500, 1024, 476] + (parts - 2) * [0]


@pytest.mark.parametrize("mu", [GAUSSIAN, MIXTURE])
def test_cells_queries_and_replicas_are_put_together(mu, monkeypatch):
    lengths, u = [1, 700, 66_000], torch.tensor([[0.8, -0.5], [0.0, 0.2]], dtype=torch.float64)
    whole = fused.sample_fused(u, EYE, mu, lengths, 2, 0)
    assert bool((whole[:, :, 1:] != whole[:, :, :-1]).all())
    monkeypatch.setattr(fused, "CELL", fused.ITEM)  # three, of which the second records nothing
    assert_close(fused.sample_fused(u, EYE, mu, lengths, 2, 0), whole, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(fused, "HELD", 1)  # one replica for one query at a time
    assert_close(fused.sample_fused(u, EYE, mu, lengths, 2, 0), whole, rtol=1e-12, atol=1e-12)


def test_places_beyond_32_bits_are_places_of_their_own():
    reduction = dataclasses.replace(reduction_of(1, torch.float32), u=torch.ones(5))
    for level in range(3):
        places = fused.Places(1, 0, 0, 1)
        found = places.normals(reduction, level, torch.tensor([0, 2**32, 2**40]))[0, :, 0, 0]
        assert len(set(found.tolist())) == 3
    starts = [places.scalars(reduction, start, start + 9)[1][0, 0] for start in (0, 2**34, 2**40)]
    assert len(set(map(float, starts))) == 3


def test_residuals_of_parts_and_tokens_add_up():
    """What the item has is what its parts have together, and a part what its tokens have."""
    sums = torch.rand(4, 8, 7, dtype=torch.float64)  # two labels
    y = torch.randn(4, 8, 2, 3, dtype=torch.float64)
    x = fused._split(sums, y)
    power = sums[..., 5:] * torch.exp(2 * sums[..., :1])
    together = (power.sqrt().unsqueeze(-1) * x).sum(1) / power.sum(1).sqrt().unsqueeze(-1)
    assert_close(together, y[:, 0], rtol=1e-12, atol=1e-12)


def test_the_kernel_is_taken_on_a_gpu_only():
    assert not fused.fused_here(GAUSSIAN)
    assert not fused.fused_here(MIXTURE)


def reduction_of(labels, dtype, device="cpu", dim=5):
    generator = torch.Generator().manual_seed(0)
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=dtype)[:labels]
    means, roots = (torch.randn(labels, dim, *more, generator=generator, dtype=dtype) for more in ((), (dim,)))
    u, V = torch.linspace(0.7, -0.4, 2 * dim, dtype=dtype).reshape(2, dim), torch.eye(dim, dtype=dtype)
    return reduced.Reduction(*(part.to(device) for part in (means, roots, weights, u, V)))


def each_query(plain, reduction, cuts, places, *sums):
    """What a plain twin gives for each query."""
    found = []
    for i, u in enumerate(reduction.u):
        one, where = dataclasses.replace(reduction, u=u), dataclasses.replace(places, query=places.query + i)
        found.append(plain(one, cuts, where, *(part[i] for part in sums)))
    return found


def same_numbers(device):
    """Compare both kernels with their twins on the CPU: lengths that end in an item, a part and a counter, and far out."""
    places = fused.Places(12345678901234567, 3, 7, 2)
    for dtype, tolerance, labels in ((torch.float32, 3e-5, 3), (torch.float64, 1e-12, 1)):  # sums of 2¹⁵ terms
        here, there = reduction_of(labels, dtype), reduction_of(labels, dtype, device)
        for start, lengths in ((0, (1029, 2048, 2500)), (2**33, (2**33 + 32_768, 2**33 + 33_999, 2**33 + 35_001))):
            cuts, moved = (fused.Cuts.of(start, lengths, torch.device(each)) for each in ("cpu", device))
            sums = fused.segment_sums(there, moved, places).cpu()
            twin = torch.stack(each_query(fused.plain_segment_sums, here, cuts, places))
            assert float((sums[..., 1:] - twin[..., 1:]).abs().max() / twin[..., 1:].abs().max()) < tolerance, dtype
            found = fused.prefix_sums(there, moved, places, twin.nan_to_num(neginf=-1e30).to(device))
            others = each_query(fused.plain_prefix_sums, here, cuts, places, twin)
            for name in ("peak", "mass", "first", "residual"):
                ours, theirs = getattr(found, name).cpu(), torch.stack([getattr(other, name) for other in others])
                assert float((ours - theirs).abs().max() / theirs.abs().max()) < tolerance, (dtype, name)


def test_the_kernels_give_the_numbers_of_their_twins():
    """In Triton's interpreter, on the CPU, which has to be asked for before Triton is imported; compiled where there is a GPU."""
    pytest.importorskip("triton", reason="Triton is not installed: it comes with PyTorch's builds for GPUs")
    if torch.cuda.is_available():
        same_numbers("cuda")
        return
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_fused; test_fused.same_numbers('cpu')"
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gpu_draws_the_prompts_of_the_plain_twins(dtype):
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    for mu in (GAUSSIAN, MIXTURE):
        there = mu.to(dtype, "cuda")
        assert fused.fused_here(there)
        u, V = torch.tensor([[0.8, -0.5], [0.1, 0.3]], dtype=dtype), EYE.to(dtype)
        lengths = [3, 1500, 40_000]
        ours = fused.sample_fused(u.cuda(), V.cuda(), there, lengths, 5, 9).cpu()
        twin = fused.sample_fused(u, V, mu.to(dtype), lengths, 5, 9)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-11
        assert_close(ours, twin, rtol=10 * tolerance, atol=tolerance)


def test_components_of_no_weight_are_never_drawn():
    """A uniform number in single precision may be 1, as may be the share of all components but the last."""
    one = torch.ones(2, 1, 1)
    reduction = fused.Reduction.of(lp.GaussianMixture(torch.tensor([1.0, 0.0]), one[:, 0], one), one[0, 0], one[0])
    largest = fused.counter.uniforms((torch.tensor([2**32 - 1]),) * 4, torch.float32)
    assert float(largest.max()) == 1.0
    assert torch.searchsorted(fused._shares(reduction), largest, right=True).max() == 0
