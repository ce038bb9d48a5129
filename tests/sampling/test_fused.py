"""The fused sampler: its plain twin against the exact law everywhere, its kernel against the twin where Triton is."""

import math
import os
import subprocess
import sys

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
    tilt = torch.tensor(u, dtype=torch.float64)
    return reduced.sample_reduced(tilt, EYE, mu, lengths, replicas, seed, fused.FusedStream)


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


def test_items_end_where_counters_and_prompts_do():
    starts, stops = fused.item_bounds(5, [9, 2 * fused.ITEM + 1])
    assert starts.tolist() == [5, 9, fused.ITEM, 2 * fused.ITEM]
    assert stops.tolist() == [9, fused.ITEM, 2 * fused.ITEM, 2 * fused.ITEM + 1]


def test_places_beyond_32_bits_are_places_of_their_own():
    reduction = reduced.Reduction.of(torch.ones(1), torch.zeros(1, 2), torch.eye(2)[None], torch.ones(2), torch.eye(2))
    ends = [torch.tensor([0, 2**34, 2**40]), torch.tensor([9, 2**34 + 9, 2**40 + 9])]
    found = fused.plain_item_sums(reduction, *ends, 1, 0, 0, 1)[0]
    assert len(set(found[:, 1].tolist())) == 3


def test_the_kernel_is_taken_on_a_gpu_only():
    assert fused.stream_for(GAUSSIAN) is reduced.ScalarStream
    assert fused.stream_for(MIXTURE) is reduced.ScalarStream


INTERPRETED = """
import numpy as np
import torch
from largeprompt.sampling import fused
from largeprompt.sampling.reduced import Reduction
for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-13)):
    for labels in (1, 3):
        generator = torch.Generator().manual_seed(0)
        weights = torch.tensor([0.2, 0.5, 0.3], dtype=dtype)[:labels]
        means, roots = (torch.randn(labels, 2, *more, generator=generator, dtype=dtype) for more in ((), (2,)))
        reduction = Reduction.of(weights, means, roots, torch.tensor([0.7, -0.4], dtype=dtype), torch.eye(2, dtype=dtype))
        ends = torch.tensor([0, 5, 2**33 + 3]), torch.tensor([1100, 1030, 2**33 + 700])
        ours, twin = (sums(reduction, *ends, 12345678901234567, 3, 7, 2) for sums in (fused.item_sums, fused.plain_item_sums))
        assert float((ours - twin).abs().max() / twin.abs().max()) < tolerance, (dtype, labels)
print("same")
"""


def test_the_kernel_gives_the_numbers_of_its_twin():
    """In Triton's interpreter, on the CPU; a GPU runs the same comparison compiled."""
    pytest.importorskip("triton", reason="Triton is not installed: it comes with PyTorch's builds for GPUs")
    if torch.cuda.is_available():
        pytest.skip("the compiled kernel is compared below")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    ran = subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout == "same\n", ran.stderr


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_on_a_gpu_gives_the_numbers_of_its_twin(dtype, labels):
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    ran = lp.GaussianMixture(torch.ones(labels) / labels, torch.randn(labels, 2), torch.eye(2).expand(labels, 2, 2))
    mu = ran.to(dtype, "cuda") if labels > 1 else GAUSSIAN.to(dtype, "cuda")
    assert fused.stream_for(mu) is fused.FusedStream
    tilt, eye = torch.tensor([0.8, -0.5], dtype=dtype), torch.eye(2, dtype=dtype)
    parts = (
        (torch.ones(1, dtype=dtype), mu.mean[None].cpu(), mu.covariance[None].cpu())
        if labels == 1
        else (mu.weights.cpu(), mu.means.cpu(), mu.covariances.cpu())
    )
    reduction = reduced.Reduction.of(*parts, tilt, eye)
    there = reduced.Reduction.of(*(part.cuda() for part in parts), tilt.cuda(), eye.cuda())
    ends = torch.tensor([0, 5, 2**33 + 3]), torch.tensor([40_000, 1030, 2**33 + 700])
    ours = fused.item_sums(there, *(end.cuda() for end in ends), 77, 3, 7, 2).cpu()
    twin = fused.plain_item_sums(reduction, *ends, 77, 3, 7, 2)
    assert float((ours - twin).abs().max() / twin.abs().max()) < (1e-5 if dtype == torch.float32 else 1e-13)
