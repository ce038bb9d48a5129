"""The reduced sampler against the exact law and the full sampler, jointly over nested lengths; what
must not change what.
"""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.sampling import reduced, sample_prompts, streams
from largeprompt.testing import assert_sample_mean

FALSE_ALARM = 1e-7
REPLICAS = 8_000
EYE = torch.eye(3, dtype=torch.float64)
ATTENTION = lp.SoftmaxAttention(EYE, [[1.0, 0.5, 0.0], [0.0, -1.0, 2.0]])
COVARIANCE = torch.tensor(
    [[1.5, 0.5, 0.2], [0.5, 1.0, -0.3], [0.2, -0.3, 0.8]], dtype=torch.float64
)
GAUSSIAN = lp.Gaussian([1.0, -2.0, 0.5], COVARIANCE)
FLAT = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)  # spans a plane
SINGULAR = lp.Gaussian([0.3, 0.0, -1.0], FLAT @ FLAT.mT)
MIXTURE = lp.GaussianMixture(
    [0.5, 0.2, 0.3, 0.0],
    [[1.0, 0.0, 0.0], [-1.0, 2.0, 0.0], [0.0, -1.0, 1.0], [9.0, 9.0, 9.0]],
    torch.stack([COVARIANCE, FLAT @ FLAT.mT / 4, torch.zeros(3, 3, dtype=torch.float64), EYE]),
)
DIRECTION = torch.tensor([0.6, -0.3, 0.5], dtype=torch.float64)
# normal to the plane: constant scores for SINGULAR
NORMAL = torch.tensor([2.0, -2.0, 1.0], dtype=torch.float64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def scaled(mu, sigma):
    """Query whose scores have standard deviation sigma."""
    return DIRECTION * sigma / torch.sqrt(DIRECTION @ mu.covariance @ DIRECTION)


CASES = {
    "Gaussian, moderate": (GAUSSIAN, scaled(GAUSSIAN, 1.0), (3, 10)),
    "Gaussian, strong": (GAUSSIAN, scaled(GAUSSIAN, 2.0), (7, 50)),
    "Gaussian, frozen": (GAUSSIAN, scaled(GAUSSIAN, 5.0), (6, 20)),
    "Gaussian, no scores": (GAUSSIAN, 0 * DIRECTION, (3, 10)),
    "singular": (SINGULAR, scaled(SINGULAR, 1.5), (5, 12)),
    "singular, constant scores": (SINGULAR, NORMAL, (5, 12)),
    "mixture": (MIXTURE, DIRECTION, (3, 10)),
    "mixture, strong": (MIXTURE, 3 * DIRECTION, (6, 25)),
    "mixture, no scores": (MIXTURE, 0 * DIRECTION, (3, 10)),
    "mixture, constant scores in one component": (MIXTURE, NORMAL / 2, (4, 9)),
}


def features(outputs, center):
    """First and second moments over both lengths, the cross-covariance among them: (2, n, o) -> (n,
    2o + 4o²).
    """
    rows = (outputs - center).movedim(0, 1).flatten(1)
    return torch.cat([rows, (rows.unsqueeze(-1) * rows.unsqueeze(-2)).flatten(1)], 1)


def assert_same_law(mu, z, lengths, center=None):
    center = ATTENTION(mu, z) if center is None else center
    full = sample_prompts(ATTENTION, mu, z, lengths, REPLICAS, seeded(1)).outputs
    short = sample_prompts(ATTENTION, mu, z, lengths, REPLICAS, seeded(2), reduced=True).outputs
    assert short.shape == full.shape
    difference = features(full, center) - features(short, center)
    assert_sample_mean(difference, torch.zeros_like(difference[0]), false_alarm=FALSE_ALARM)


def assert_exact_moments(outputs, law):
    for samples, mean, covariance in zip(
        outputs.to(torch.float64), law.mean, law.covariance, strict=True
    ):
        centered = samples - mean
        assert_sample_mean(centered, torch.zeros_like(mean), false_alarm=FALSE_ALARM)
        assert_sample_mean(
            centered.unsqueeze(-1) * centered.unsqueeze(-2), covariance, false_alarm=FALSE_ALARM
        )


@pytest.mark.parametrize(("mu", "z", "lengths"), CASES.values(), ids=CASES)
def test_moments_are_those_of_the_exact_law(mu, z, lengths):
    outputs = sample_prompts(ATTENTION, mu, z, lengths, REPLICAS, seeded(4), reduced=True).outputs
    assert_exact_moments(outputs, lp.finite_prompt(ATTENTION, mu, z, lengths))


@pytest.mark.parametrize(
    ("mu", "sigma"),
    [(GAUSSIAN, 1e-6), (GAUSSIAN, 2.0), (GAUSSIAN, 60.0), (MIXTURE, 1e-6), (MIXTURE, 6.0)],
)
def test_float32_has_the_exact_law(mu, sigma):
    single, z = lp.SoftmaxAttention(EYE.float(), ATTENTION.V.float()), scaled(mu, sigma)
    outputs = sample_prompts(
        single, mu.to(dtype=torch.float32), z.float(), (4, 30), REPLICAS, seeded(5), reduced=True
    ).outputs
    assert outputs.dtype == torch.float32
    assert_exact_moments(outputs, lp.finite_prompt(ATTENTION, mu, z, (4, 30)))


@pytest.mark.parametrize(("mu", "z", "lengths"), CASES.values(), ids=CASES)
def test_reduced_has_the_law_of_the_full_sampler(mu, z, lengths):
    assert_same_law(mu, z, lengths)


@pytest.mark.parametrize("case", ["Gaussian, strong", "mixture, strong"])
def test_reduced_has_the_law_of_the_full_sampler_across_cells(monkeypatch, case):
    monkeypatch.setattr(streams.Grid, "cells", property(lambda grid: grid.length))
    mu, z, lengths = CASES[case]
    stream = reduced.ScalarStream.of(mu, z, lengths[-1], 0, 0)
    assert stream.grid.cells > 3
    assert any(length % stream.piece for length in lengths)
    assert_same_law(mu, z, lengths)


@pytest.mark.parametrize(
    "mu", [GAUSSIAN, SINGULAR, MIXTURE], ids=["Gaussian", "singular", "mixture"]
)
@pytest.mark.parametrize("sigma", [1e4, 1e150])
def test_huge_queries_read_one_token(mu, sigma):
    assert_same_law(mu, scaled(mu, sigma), (3, 20), center=ATTENTION.V @ mu.mean)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("length", "sigma", "power"), [(10, 1.0, 0.194687393695), (50, 2.0, 0.182727368013)]
)
def test_mean_is_the_shrunken_affine_map(full, length, sigma, power):
    """E T_L = m + (1 - E Y) Γu, with E Y from quadrature."""
    attention, u = lp.SoftmaxAttention(EYE, EYE), scaled(GAUSSIAN, sigma)
    outputs = sample_prompts(
        attention, GAUSSIAN, u, length, 8000, seeded(), reduced=not full
    ).outputs[0]
    assert_sample_mean(
        outputs, GAUSSIAN.mean + (1 - power) * COVARIANCE @ u, false_alarm=FALSE_ALARM
    )


def test_without_scores_prompts_are_averages():
    """At u = 0: mean m, and Cov(T_L, T_M) = Γ/max(L, M); lengths end inside pieces."""
    attention, lengths = lp.SoftmaxAttention(EYE, EYE), (2, 6, 7, 11)
    outputs = (
        sample_prompts(
            attention, SINGULAR, 0 * DIRECTION, lengths, REPLICAS, seeded(), reduced=True
        ).outputs
        - SINGULAR.mean
    )
    assert_sample_mean(
        outputs.movedim(0, 1), torch.zeros(4, 3, dtype=torch.float64), false_alarm=FALSE_ALARM
    )
    for (_, first), (length, second) in itertools.combinations_with_replacement(
        zip(lengths, outputs, strict=True), 2
    ):
        product = first.unsqueeze(-1) * second.unsqueeze(-2)
        assert_sample_mean(product, SINGULAR.covariance / length, false_alarm=FALSE_ALARM)


@pytest.mark.parametrize(
    "mu", [GAUSSIAN, SINGULAR, MIXTURE], ids=["Gaussian", "singular", "mixture"]
)
@pytest.mark.parametrize("longest", [1, 200])
@pytest.mark.parametrize("sigma", [0.7, 60.0])
def test_one_token_has_the_law_of_a_token(mu, longest, sigma):
    """Also as the first of many, some of which weigh e^100 times as much."""
    attention = lp.SoftmaxAttention(EYE, EYE)
    lengths = (1,) if longest == 1 else (1, longest)
    samples = sample_prompts(
        attention, mu, scaled(mu, sigma), lengths, 3000, seeded(3), reduced=True
    )
    assert bool(torch.isfinite(samples.outputs).all())
    centered = samples.outputs[0] - mu.mean
    assert_sample_mean(centered, torch.zeros(3, dtype=torch.float64), false_alarm=FALSE_ALARM)
    assert_sample_mean(
        centered.unsqueeze(-1) * centered.unsqueeze(-2), mu.covariance, false_alarm=FALSE_ALARM
    )


def test_singular_tokens_stay_in_their_plane():
    attention = lp.SoftmaxAttention(EYE, EYE)
    queries = torch.stack([scaled(SINGULAR, 2.0), NORMAL, 1e-9 * DIRECTION, 0 * DIRECTION])
    outputs = sample_prompts(
        attention, SINGULAR, queries, (1, 30), 200, seeded(), reduced=True
    ).outputs
    assert_close(
        (outputs - SINGULAR.mean) @ NORMAL,
        torch.zeros(2, 200, 4, dtype=torch.float64),
        rtol=0,
        atol=1e-7,
    )


def test_error_falls_to_the_limit():
    """E‖V(T_L - T)‖² = (e^{σ²}/L) (tr VΓV^T + ‖VΓu‖²) to leading order; here within 5 % at
    L = 3000.
    """
    z = scaled(GAUSSIAN, 1.0)
    V = ATTENTION.V
    samples = sample_prompts(ATTENTION, GAUSSIAN, z, (300, 3000), 1000, seeded(), reduced=True)
    mean, error = samples.mse(ATTENTION(GAUSSIAN, z))
    leading = (
        math.e * (torch.trace(V @ COVARIANCE @ V.mT) + (V @ COVARIANCE @ z).square().sum()) / 3000
    )
    assert abs(mean[1] - leading) < 0.05 * leading + 5.5 * error[1]
    assert mean[0] > 5 * mean[1]


@pytest.mark.parametrize("mu", [GAUSSIAN, MIXTURE], ids=["Gaussian", "mixture"])
@pytest.mark.parametrize("many", [False, True])
def test_seeds_replicas_and_lengths(monkeypatch, mu, many):
    if many:
        monkeypatch.setattr(streams.Grid, "cells", property(lambda grid: grid.length))

    def draw(lengths, replicas, seed=0, z=DIRECTION):
        return sample_prompts(
            ATTENTION, mu, z, lengths, replicas, seeded(seed), reduced=True
        ).outputs

    reference = draw((10, 100), 7)
    assert torch.equal(reference, draw((10, 100), 7))
    assert not torch.equal(reference, draw((10, 100), 7, seed=1))
    # more replicas come after the first
    assert_close(draw((10, 100), 1500)[:, :7], reference, rtol=1e-12, atol=1e-13)
    assert_close(draw((10, 100), 1), reference[:, :1], rtol=1e-12, atol=1e-13)
    # lengths in between are only read
    assert_close(draw((10, 50, 100), 7)[::2], reference, rtol=1e-11, atol=1e-12)
    assert_close(draw(range(1, 101), 7)[[9, 99]], reference, rtol=1e-11, atol=1e-12)
    assert_close(draw(100, 7), reference[1:], rtol=1e-11, atol=1e-12)
    # nor do further queries
    assert_close(draw((10, 100), 7, z=torch.stack([DIRECTION, NORMAL]))[:, :, 0], reference)


def test_queries_are_independent_and_keep_their_shape():
    z = DIRECTION.expand(2, 2, 3)
    outputs = sample_prompts(ATTENTION, GAUSSIAN, z, 5, REPLICAS, seeded(), reduced=True).outputs
    assert outputs.shape == (1, REPLICAS, 2, 2, 2)
    centered = (outputs - outputs.mean(1, keepdim=True))[0].flatten(1, 2)  # (replicas, queries, o)
    product = centered[:, 0, :, None] * centered[:, 3, None, :]
    assert_sample_mean(product, torch.zeros(2, 2, dtype=torch.float64), false_alarm=FALSE_ALARM)
    assert sample_prompts(
        ATTENTION, GAUSSIAN, z[:0], 5, 3, seeded(), reduced=True
    ).outputs.shape == (1, 3, 0, 2, 2)


def test_a_constant_in_the_scores_is_not_seen():
    far = lp.Gaussian(GAUSSIAN.mean + 1e4, COVARIANCE)
    near = sample_prompts(
        ATTENTION, GAUSSIAN, DIRECTION, (2, 30), 5, seeded(), reduced=True
    ).outputs
    moved = sample_prompts(ATTENTION, far, DIRECTION, (2, 30), 5, seeded(), reduced=True).outputs
    assert_close(moved - ATTENTION.V.sum(-1) * 1e4, near, rtol=0, atol=1e-8)


def test_float32_and_no_graph():
    single = lp.SoftmaxAttention(EYE.float().requires_grad_(), ATTENTION.V.float())
    for mu in (GAUSSIAN, MIXTURE):
        z = scaled(mu, 40.0).float()
        samples = sample_prompts(
            single, mu.to(dtype=torch.float32), z, (1, 7, 500), 20, seeded(), reduced=True
        )
        assert samples.outputs.dtype == torch.float32
        assert not samples.outputs.requires_grad
        assert bool(torch.isfinite(samples.outputs).all())


def test_blocks_of_replicas_make_room_for_many_dimensions():
    assert streams.Grid(10, 1).replicas == streams.CELL_REPLICAS
    assert streams.Grid(10, 1, 3 * 500).replicas == 512 <= streams.CELL_SCALARS["cpu"] // 1500
    assert streams.Grid(10, 1, 10**7).replicas == 1


@pytest.mark.parametrize("sigma", [0.0, 1.0, 30.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_residual_of_the_start_of_a_piece_is_a_brownian_bridge(dtype, sigma):
    """With unit vectors for x and η, residual sums are their coefficients: Cov(B_n, B_m) = P_n for
    n ≤ m, 0 between components.
    """
    p, k = 12, 3
    unit = torch.eye(k + p, dtype=dtype)
    xi = torch.randn(1, 1, p, generator=seeded(), dtype=dtype)
    label = torch.arange(p) % 2  # the third component has no token
    scores = torch.where(
        label == torch.arange(k).unsqueeze(-1),
        sigma * (1 + torch.arange(k).unsqueeze(-1)) * xi,
        -math.inf,
    )
    whole = reduced.Tokens(scores.reshape(1, 1, k, p), xi)
    end = whole.root * unit[:k]
    starts = [whole.start(0, count) for count in range(1, p + 1)]
    bridges = [whole.bridge(start, end, unit[None, None, k:]) for start in starts]
    assert_close(bridges[-1], end, rtol=1e-5, atol=1e-6)
    for n in range(p):
        for m in range(n, p):
            both = bridges[n].squeeze() @ bridges[m].squeeze().mT
            # P_n is relative to its own peak squared
            shrink = torch.exp(starts[n].peak - starts[m].peak)
            expected = torch.diag((starts[n].root.square().squeeze(-1) * shrink).squeeze())
            scale = (starts[n].root * starts[m].root.mT).squeeze().clamp_min(1e-30)
            assert_close(both / scale, expected / scale, rtol=0, atol=20 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 1e-23), (torch.float32, 1e-40), (torch.float64, 1e-170)]
)
def test_queries_whose_squares_are_nothing_are_read_like_small_ones(dtype, size):
    """Scores that small change no weight, but the direction of the query is still a direction."""
    eye = torch.eye(3, dtype=dtype)
    mu, attention, z = (
        lp.Gaussian(0 * eye[0], eye + 0.5),
        lp.SoftmaxAttention(eye, eye),
        torch.tensor([1.0, -2.0, 0.5], dtype=dtype),
    )
    tiny, small = (
        sample_prompts(attention, mu, c * z, [3, 10], 64, 0, reduced=True).outputs
        for c in (size, 1e-9)
    )
    assert_close(tiny, small, rtol=1e-4, atol=1e-4)


def test_rare_components_are_as_rare_in_single_precision():
    """A float32 uniform is 0 with probability 6e-8, and 1 - 1e-8 is 1 there."""
    labels = []
    for dtype in (torch.float32, torch.float64):
        eye = torch.eye(1, dtype=dtype).expand(2, 1, 1)
        for weights in ([1 - 1e-8, 1e-8], [0.25, 0.75]):
            mu = lp.GaussianMixture(torch.tensor(weights, dtype=dtype), eye[:, 0], eye)
            stream = reduced.ScalarStream.of(mu, eye[0, 0], 1000, 0, 0)
            assert float(1 - stream.shares[0]) == pytest.approx(weights[1], rel=1e-6)
        labels.append(stream.cell(0, 0, 4)[0].scores.isinf())
    assert torch.equal(*labels)
