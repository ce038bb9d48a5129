"""Softmax and linear attention as operators on measures: claims C1 and C2."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import largeprompt as lp
from largeprompt import validation
from largeprompt.testing.strategies import vectors

F = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


ONE = lp.SoftmaxAttention([[1.0]], [[1.0]])


@pytest.mark.parametrize("dim", [1, 2, 3, 10, 50, 200])
@pytest.mark.parametrize("rank", ["full", "half", "one", "zero"])
def test_gaussian_identity(dim, rank):
    """C2: T = V(m + ΓUz), singular Γ included, against a route that never forms Γ."""
    columns = {"full": dim, "half": max(1, dim // 2), "one": 1, "zero": 0}[rank]
    root = draw(dim, columns, seed=1) / math.sqrt(dim)
    m, U, V, z = (
        draw(dim, seed=2),
        draw(dim, dim, seed=3) / math.sqrt(dim),
        draw(4, dim, seed=4),
        draw(6, dim, seed=5),
    )
    mu = lp.Gaussian(m, root @ root.mT)
    attention = lp.SoftmaxAttention(U, V)
    expected = torch.stack([V @ m + V @ (root @ (root.mT @ (U @ query))) for query in z])
    assert_close(attention(mu, z), expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max()))
    matrix, offset = lp.affine_limit(attention, mu)
    assert_close(
        z @ matrix.mT + offset, expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max())
    )
    (by_autodiff,) = torch.autograd.grad(mu.cgf(u := (U @ z[0]).requires_grad_()), u)
    assert_close(V @ by_autodiff, expected[0], rtol=1e-12, atol=1e-12 * float(expected.abs().max()))


def test_gaussian_identity_by_importance_sampling_of_the_definition():
    """C1's ratio of integrals by a plain sum over 4·10^6 draws, in six standard errors (false alarm
    below 1e-8).
    """
    mu = lp.Gaussian([0.5, -0.2], [[1.0, 0.4], [0.4, 0.5]])
    attention = lp.SoftmaxAttention([[0.3, 0.1], [-0.2, 0.5]], [[1.0, 0.0], [0.5, 2.0]])
    z = torch.tensor([0.7, -0.4], dtype=F)
    x = mu.sample(4_000_000, torch.Generator().manual_seed(0))
    weight = torch.exp(x @ (attention.U @ z))
    value = weight[:, None] * (x @ attention.V.mT)
    ratio = value.mean(0) / weight.mean()
    error = (value - ratio * weight[:, None]).std(0) / weight.mean() / math.sqrt(len(x))
    assert bool(((ratio - attention(mu, z)).abs() < 6 * error).all())
    assert bool((error < 2e-3).all())


def test_rademacher_control_is_tanh_and_not_affine():
    attention = lp.SoftmaxAttention(torch.eye(3, dtype=F), torch.eye(3, dtype=F))
    z = torch.tensor([0.5, -1.0, 2.0], dtype=F)
    limit = attention(lp.Rademacher(3), z)
    matrix, offset = lp.affine_limit(attention, lp.Rademacher(3))
    assert_close(limit, torch.tanh(z), rtol=1e-15, atol=0)
    assert_close(matrix @ z + offset, z, rtol=1e-15, atol=0)
    assert float((limit - z).norm()) > 1


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.data(), st.integers(1, 4), st.integers(1, 7))
def test_finite_prompt_is_the_usual_attention(data, d, length):
    tokens, z = data.draw(vectors(d, shape=(length,))), data.draw(vectors(d, shape=(2,)))
    K, Q, V = (data.draw(vectors(d, shape=(3,))) for _ in range(3))
    attention = lp.SoftmaxAttention.from_projections(K, Q, V, scale=1 / math.sqrt(3))
    keys, queries, values = (t @ m.mT for t, m in ((tokens, K), (z, Q), (tokens, V)))
    expected = torch.nn.functional.scaled_dot_product_attention(
        queries[None], keys[None], values[None]
    )[0]
    assert_close(attention(lp.Empirical(tokens), z), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [lp.SoftmaxAttention, lp.LinearAttention])
@pytest.mark.parametrize(
    "mu",
    [
        lp.Gaussian([0.1, -0.3], [[1.0, 0.2], [0.2, 0.5]]),
        lp.Empirical(draw(6, 2)),
        lp.Rademacher(2),
        lp.Sphere(2),
    ],
    ids=repr,
)
def test_jacobians_equal_autodiff(kind, mu):
    U, V, z = draw(2, 2, seed=1), draw(3, 2, seed=2), draw(4, 2, seed=3)
    attention = kind(U, V)
    in_u, in_v = attention.jacobian_u(mu, z), attention.jacobian_v(mu, z)
    assert in_u.shape == (4, 3, 2, 2)
    assert in_v.shape == (4, 3, 3, 2)
    assert_close(
        in_u,
        torch.autograd.functional.jacobian(lambda M: kind(M, V)(mu, z), U),
        rtol=1e-9,
        atol=1e-11,
    )
    assert_close(
        in_v,
        torch.autograd.functional.jacobian(lambda M: kind(U, M)(mu, z), V),
        rtol=1e-9,
        atol=1e-11,
    )


def test_linear_attention_is_the_second_moment():
    tokens, z = draw(9, 3), draw(5, 3, seed=1)
    attention = lp.LinearAttention(draw(3, 3, seed=2), draw(2, 3, seed=3))
    scores = tokens @ attention.U @ z.mT  # (L, n)
    expected = (scores.mT @ tokens / 9) @ attention.V.mT
    assert_close(attention(lp.Empirical(tokens), z), expected, rtol=1e-12, atol=1e-12)
    matrix, offset = lp.affine_limit(attention, lp.Empirical(tokens))
    assert_close(z @ matrix.mT + offset, expected, rtol=1e-12, atol=1e-12)


def test_linear_attention_is_the_first_order_of_softmax_for_centered_tokens():
    mu, z = lp.Uniform(3), draw(3)
    U, V = draw(3, 3, seed=1), draw(2, 3, seed=2)
    softmax, linear = lp.SoftmaxAttention(1e-5 * U, V), lp.LinearAttention(1e-5 * U, V)
    assert_close(softmax(mu, z), linear(mu, z), rtol=1e-8, atol=0)


@pytest.mark.parametrize("kind", [lp.SoftmaxAttention, lp.LinearAttention])
@pytest.mark.parametrize("queries", [(), (5,), (4, 5)])
def test_heads_lead(kind, queries):
    """U (h, d, d), V (h, o, d): results (h, *queries, ...), each head as if alone; a shared U or V
    broadcasts.
    """
    U, V, z = draw(3, 2, 2), draw(3, 4, 2, seed=1), draw(*queries, 2, seed=2)
    for mu in (
        lp.Gaussian([0.1, 0.2], [[1.0, 0.0], [0.0, 2.0]]),
        lp.Empirical(draw(7, 2, seed=3)),
        lp.Uniform(2),
    ):
        many = kind(U, V)
        for name, tail in (
            ("__call__", (4,)),
            ("jacobian_u", (4, 2, 2)),
            ("jacobian_v", (4, 4, 2)),
        ):
            value = getattr(many, name)(mu, z)
            assert value.shape == (3, *queries, *tail)
            assert_close(value[1], getattr(kind(U[1], V[1]), name)(mu, z))
            assert_close(
                getattr(kind(U[1], V), name)(mu, z)[2], getattr(kind(U[1], V[2]), name)(mu, z)
            )
            assert_close(
                getattr(kind(U, V[1]), name)(mu, z)[2], getattr(kind(U[2], V[1]), name)(mu, z)
            )
    matrix, offset = lp.affine_limit(kind(U, V), lp.Uniform(2))
    assert matrix.shape == (3, 4, 2)
    assert offset.shape == (3, 4)


def test_batches_of_prompts_meet_batches_of_queries():
    prompts, z = draw(6, 9, 2), draw(6, 2, seed=1)
    attention = lp.SoftmaxAttention(draw(2, 2, seed=2), draw(3, 2, seed=3))
    each = torch.stack([attention(lp.Empirical(p), q) for p, q in zip(prompts, z, strict=True)])
    assert_close(attention(lp.Empirical(prompts), z), each)
    grid = attention(lp.Empirical(prompts[:, None]), z[None])
    assert grid.shape == (6, 6, 3)
    assert_close(grid[range(6), range(6)], each)
    assert attention.jacobian_v(lp.Empirical(prompts), z[0]).shape == (6, 3, 3, 2)


def test_no_limit_reaches_every_caller():
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    for mu, z in (
        (lp.StudentT(1, 3.0), [0.1]),
        (lp.Laplace(1), [math.sqrt(2)]),
        (lp.Laplace(1).map([[2.0]]), [1.0]),
    ):
        for call in (attention, attention.jacobian_u, attention.jacobian_v):
            with pytest.raises(lp.TiltDomainError, match="no infinite-prompt limit"):
                call(mu, z)
    drawn = lp.Empirical(lp.StudentT(1, 3.0).sample(10, torch.Generator().manual_seed(0)))
    # a finite prompt always has an output
    assert bool(torch.isfinite(attention(drawn, [0.1])).all())


def test_student_moments():
    assert_close(lp.StudentT(2, 6.0).covariance, torch.eye(2, dtype=F))
    # 3 + 6/(df - 4)
    assert_close(lp.StudentT(1, 6.0).norm_moment4([0.0]), torch.tensor(6.0, dtype=F))
    for df, moment in ((2.0, "covariance"), (1.0, "mean")):
        with pytest.raises(lp.NoMomentError, match="df >"):
            getattr(lp.StudentT(1, df), moment)
    with pytest.raises(lp.NoMomentError, match="fourth"):
        lp.StudentT(1, 4.0).norm_moment4([0.0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[1.0, 2.0]], [[1.0, 0.0]]), "U: got shape"),
        (([[1.0]], [[1.0, 0.0]]), "V: got shape"),
        (([1.0], [[1.0]]), "U: got shape"),
        (([[float("nan")]], [[1.0]]), "NaN"),
        ((torch.ones(2, 1, 1), torch.ones(3, 1, 1)), "broadcast"),
        (("U", [[1.0]]), "does not convert"),
        ((torch.ones(1, 1, dtype=torch.complex64), [[1.0]]), "real dtype"),
    ],
)
def test_bad_operators(arguments, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        lp.SoftmaxAttention(*arguments)


def test_bad_calls():
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    for mu, z, words in (
        (torch.zeros(3, 1), [1.0], r"Wrap a prompt.*Empirical"),
        (lp.Uniform(2), [1.0], "measure on R"),
        (lp.Uniform(1), [1.0, 2.0], "z: got shape"),
        (lp.Uniform(1), [float("inf")], "NaN or infinite"),
    ):
        for call in (attention, attention.jacobian_u, attention.jacobian_v):
            with pytest.raises(lp.InvalidArgumentError, match=words):
                call(mu, z)
    with pytest.raises(lp.InvalidArgumentError, match="attention"):
        lp.affine_limit("softmax", lp.Uniform(1))
    with pytest.raises(lp.InvalidArgumentError, match="Q: got shape"):
        lp.SoftmaxAttention.from_projections(torch.ones(2, 3), torch.ones(3, 3), torch.ones(1, 3))
    with pytest.raises(lp.InvalidArgumentError, match="V: got a tensor without entries"):
        lp.SoftmaxAttention([[1.0]], torch.ones(1, 1, dtype=F, device="meta"))


@pytest.mark.parametrize(
    "mu",
    [
        lp.Gaussian([0.0, 1.0], [[1.0, 0.0], [0.0, 1.0]]),
        lp.GaussianMixture(
            [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], torch.eye(2, dtype=F).expand(2, 2, 2)
        ),
        lp.Empirical([[0.0, 1.0], [1.0, 0.0]]),
        lp.Discrete([[0.0, 1.0], [1.0, 0.0]], [0.25, 0.75]),
        lp.Rademacher(2),
        lp.Sphere(2),
    ],
    ids=repr,
)
def test_queries_and_tilts_are_checked_once(mu, monkeypatch):
    checked = []
    check = validation.tensor
    monkeypatch.setattr(
        validation,
        "tensor",
        lambda name, *rest, **options: checked.append(name) or check(name, *rest, **options),
    )
    layer, z = lp.SoftmaxAttention([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]]), draw(5, 2)
    for call, doors in (
        (layer, ["u", "z"]),
        (layer.jacobian_u, ["u", "z"]),
        (lambda mu, z: mu.tilted_norm_moment4(z, z), ["center", "u"]),
    ):
        checked.clear()
        call(mu, z)
        assert sorted(checked) in (doors, doors[1:])
    checked.clear()
    assert lp.finite_prompt(layer, mu, z, 10).rmse.shape == (5,)
    assert max(map(checked.count, checked)) == 1, checked


def test_odd_input_gets_our_errors():
    for call, words in (
        (
            lambda: lp.SoftmaxAttention([[1e200]], [[1.0]])(lp.Empirical([[1.0], [2.0]]), [1e150]),
            "got",
        ),
        (lambda: ONE(lp.Empirical([[1.0], [2.0]]), [math.nan]), "z: got 1 NaN"),
        (lambda: ONE(lp.Empirical([[1.0], [2.0]]), [-math.inf]), "z: got 1 NaN or infinite"),
        (
            lambda: lp.SoftmaxAttention([[1e80]], [[1e152]])(lp.Gaussian([0.0], [[1e152]]), [1e70]),
            "z: got scores or",
        ),
    ):
        with pytest.raises(lp.InvalidArgumentError, match=words):
            call()


def test_a_users_law_outside_its_domain_is_refused():
    class Exponential(lp.Measure):
        dim = 1

        def cgf(self, u):
            return -torch.log1p(-u[..., 0])

        def sample(self, n, generator):
            return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=self.dtype))

    with pytest.raises(lp.TiltDomainError, match="not finite"):
        ONE(Exponential(), [1.5])


@pytest.mark.parametrize("kind", [lp.SoftmaxAttention, lp.LinearAttention])
def test_a_layer_in_another_precision(kind):
    layer = kind(draw(2, 3, 3), draw(2, 1, 3))
    single = layer.to(torch.float32)
    assert type(single) is kind
    assert single.U.dtype == single.V.dtype == torch.float32
    assert_close(single.to(F).U, layer.U, rtol=1e-6, atol=1e-6)
    assert_close(layer.to(device="cpu").V, layer.V)
