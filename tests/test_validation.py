"""What comes in at the door: converted without loss, or refused by name."""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt import validation

F = torch.float64


def test_numbers_become_double_precision_and_tensors_keep_theirs():
    assert validation.tensor("x", [1, 2]).dtype == validation.tensor("x", True).dtype == F
    assert validation.tensor("x", np.float32(1)).dtype == torch.float32
    assert validation.tensor("x", [1.0], like=torch.zeros(1)).dtype == torch.float32
    given = torch.zeros(2, requires_grad=True)
    assert validation.tensor("x", given) is given


def test_entries_so_large_that_their_products_overflow_are_refused():
    large = torch.tensor([1e152, -1e152], dtype=F)
    assert validation.tensor("x", large) is large
    for entries in (2 * large, -2 * large, torch.tensor([2e18, -2e18])):
        with pytest.raises(
            lp.InvalidArgumentError,
            match=r"x: got an entry of size 2e\+(152|18); .* Choose other units",
        ):
            validation.tensor("x", entries)
    assert validation.tensor("x", [math.nan], finite=False).isnan().all()


def test_covariances_and_weights_may_be_wrong_by_rounding():
    root = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=F)
    matrix = root @ root.mT  # rank two: eigenvalues of either sign at 1e-16
    assert validation.covariance("c", matrix) is matrix
    thirds = torch.full((3,), 1 / 3, dtype=torch.float32)
    assert validation.weights("w", thirds) is thirds


def test_lengths():
    assert validation.lengths("L", 5) == ([5.0], False)
    assert validation.lengths("L", np.array([1, 10**15])) == ([1.0, 1e15], True)
    assert validation.lengths("L", [2.0, math.inf], allow_infinity=True) == ([2.0, math.inf], True)
    assert validation.length("L", torch.tensor(3)) == 3.0
    assert validation.indices("i", [0, 2], 3).tolist() == [0, 2]


class Rude:
    def __repr__(self):
        raise RuntimeError


def test_what_was_given_is_said_in_one_short_line():
    assert validation.text(10**5000) == "an integer of 5001 digits"
    assert validation.text(-(10**400)) == "a negative integer of 401 digits"
    assert validation.text("x" * 10**6) == "'" + 76 * "x" + "..."
    assert validation.text(torch.zeros(3, 2)) == "Tensor of torch.float32, shape (3, 2)"
    assert [validation.text(each) for each in ([10**5000], Rude(), "a\nb")] == [
        "list",
        "Rude",
        r"'a\nb'",
    ]


def test_memory_and_time_are_said_before_they_are_spent():
    # may well be wanted
    validation.affordable("n", 1, needed=validation.memory(torch.device("cpu")) / 2, seconds=3600.0)
    with pytest.raises(
        lp.InvalidArgumentError,
        match=r"n: got 7, which takes 9.77e\+04 GiB of memory; .* GiB of this machine\. Draw",
    ):
        validation.affordable("n", 7, needed=1e5 * 2**30 / 1.024, remedy="Draw fewer.")
    with pytest.raises(
        lp.InvalidArgumentError,
        match=r"n: got 7, which takes some 31.7 years; allowed: what takes less than a month",
    ):
        validation.affordable("n", 7, seconds=1e9)


@pytest.mark.parametrize(
    "value",
    [
        torch.eye(2, dtype=F).to_sparse(),
        torch.eye(2, dtype=F, device="meta"),
        np.ma.array([1.0, 2.0], mask=[0, 1]),
        [10**400],
    ],
)
def test_only_dense_tensors_of_numbers_come_in(value):
    with pytest.raises(lp.InvalidArgumentError, match=r"^x: got .*; allowed: "):
        validation.tensor("x", value)


REFUSED = {
    "word for a flag": (lambda: validation.flag("x", "no"), "x: got 'no'; allowed: True or False"),
    "another word": (
        lambda: validation.choice("x", 3, ["a", "b", "c"]),
        "x: got 3; allowed: 'a', 'b' or 'c'",
    ),
    "another kind": (
        lambda: validation.instance("x", None, int, "an int", "Use 0."),
        "x: got None; allowed: an int. Use 0.",
    ),
    "many digits": (
        lambda: validation.length("L", 10**5000),
        r"L: got an integer of 5001 digits; allowed: .* 1 to 10\^15",
    ),
    "overflow": (
        lambda: validation.positive("x", 10**400),
        "x: got an integer of 401 digits; allowed: a positive number",
    ),
    "two numbers for one": (
        lambda: validation.positive("x", torch.ones(2)),
        r"x: got Tensor of torch.float32, shape \(2,\)",
    ),
    "more than 64 bits": (
        lambda: validation.integer("n", 2**63),
        r"n: got 9223372036854775808; .* at most 2\^63 - 1",
    ),
    "sparse index": (
        lambda: validation.indices("i", torch.eye(2).long().to_sparse(), 3),
        "i: got Tensor of torch.int64",
    ),
    "complex": (lambda: validation.tensor("x", [1j]), "x: got dtype torch.complex128"),
    "text": (lambda: validation.tensor("x", "ab"), "x: got str that does not convert"),
    "a wider dtype": (
        lambda: validation.tensor("x", torch.zeros(1, dtype=F), like=torch.zeros(1)),
        r"Use x\.to\(torch\.float32\)",
    ),
    "infinite": (
        lambda: validation.tensor("x", [1.0, math.inf]),
        r"x: got 1 NaN or infinite of 2 entries; allowed: finite numbers",
    ),
    "shape": (
        lambda: validation.last_dimensions("x", torch.ones(1), ("n", 2)),
        r"x: got shape \(1,\); allowed: shape \(\.\.\., n, 2\)",
    ),
    "no batch": (
        lambda: validation.last_dimensions("x", torch.ones(3, 2), (2,), batch=False),
        r"allowed: shape \(2,\)",
    ),
    "broadcast": (
        lambda: validation.broadcast("a and b", torch.Size([2]), torch.Size([3])),
        "a and b: got batch shapes",
    ),
    "not square": (lambda: validation.square("m", torch.ones(2, 3)), "m: got shape"),
    "asymmetric": (
        lambda: validation.covariance("c", torch.tensor([[1.0, 0.1], [0.0, 1.0]])),
        "asymmetric",
    ),
    "indefinite": (lambda: validation.covariance("c", -torch.eye(2)), "smallest eigenvalue -1"),
    "weights": (
        lambda: validation.weights("w", torch.tensor([0.5, 0.4])),
        "w: got entries that sum to 0.9",
    ),
    "boolean": (lambda: validation.integer("n", True), "n: got True"),
    "fraction": (lambda: validation.integer("n", 1.5), "n: got 1.5"),
    "too small": (lambda: validation.integer("n", 1, minimum=2), "an integer of at least 2"),
    "too long": (lambda: validation.length("L", 10**15 + 1), r"1 to 10\^15"),
    "infinite length": (lambda: validation.length("L", math.inf), "L: got inf"),
    "no lengths": (lambda: validation.lengths("L", []), "L: got no lengths"),
    "index beyond": (lambda: validation.indices("i", [0, 3], 3), "i: got entries from 0 to 3"),
    "index of a float": (lambda: validation.indices("i", 1.0, 3), "i: got torch.float32"),
    "two numbers": (
        lambda: validation.number("x", [1.0, 2.0]),
        r"x: got \[1.0, 2.0\]; allowed: one number",
    ),
    "below": (lambda: validation.number("x", -1.0, minimum=0), "one nonnegative number"),
    "zero": (lambda: validation.positive("x", 0), "x: got 0.0"),
    "nan": (lambda: validation.positive("x", math.nan), "x: got nan"),
    "infinity": (lambda: validation.positive("x", math.inf), "x: got inf"),
    "negative seed": (lambda: validation.generator(-1, torch.device("cpu")), "generator: got -1"),
    "seed too large": (
        lambda: validation.generator(2**63, torch.device("cpu")),
        "a seed from 0 to",
    ),
    "seed": (lambda: validation.generator(True, torch.device("cpu")), "generator: got bool"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    call, words = REFUSED[name]
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()


def test_a_seed_is_the_generator_of_that_seed():
    drawn = [
        torch.rand(3, generator=validation.generator(each, torch.device("cpu")))
        for each in (7, np.int64(7))
    ]
    drawn.append(torch.rand(3, generator=torch.Generator().manual_seed(7)))
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])
    given = torch.Generator()
    assert validation.generator(given, torch.device("cpu")) is given


LAYER = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.3]], [[0.0, 0.3]])
LAWS = {
    "Gaussian": lp.Gaussian([0.1, 0.0], [[1.0, 0.5], [0.5, 1.0]]),
    "signs": lp.Rademacher(2),
    "tokens": lp.Empirical([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.5, -0.5], [0.2, 0.1]] * 9),
}
TASK, FLOW = (
    lp.LinearRegression([[1.0]], [[1.0]], 0.1),
    {"parametrization": "block", "average": lp.training.SobolAverage(64)},
)
BLOCK = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.0]], [[0.0, 0.3]])
WITH_LAW = {
    "attention": lambda attention, mu, z: attention(mu, z),
    "linear attention": lambda attention, mu, z: lp.LinearAttention(attention.U, attention.V)(
        mu, z
    ),
    "jacobian_u": lambda attention, mu, z: attention.jacobian_u(mu, z),
    "jacobian_v": lambda attention, mu, z: attention.jacobian_v(mu, z),
    "affine_limit": lambda attention, mu, z: lp.affine_limit(attention, mu)[0] @ z,
    "finite_prompt": lambda attention, mu, z: lp.finite_prompt(attention, mu, z, 100).rmse,
    "certificate": lambda attention, mu, z: lp.certificate(attention, mu, z, 100).rmse,
    "jacobian_certificate": lambda attention, mu, z: (
        lp.jacobian_certificate(attention, mu, z, 100).rmse
    ),
    "prompt_length": lambda attention, mu, z: lp.prompt_length(attention, mu, z, 0.02).rmse,
    "query_average": lambda attention, mu, z: (
        lp.query_average(attention, mu, lp.Discrete(z[None], z[:1] / z[:1]), 100).rmse
    ),
    "sample_prompts": lambda attention, mu, z: lp.sample_prompts(
        attention, mu, z, [4], 2, 0
    ).outputs.shape[0],
    "tilts": lambda attention, mu, z: mu.tilted_mean(attention.tilts(z)),
    "to": lambda attention, mu, z: attention.to(torch.float64)(mu.to(torch.float64), z.double()),
}  # every public function that takes a layer, a law and a query
WITH_LAYER = {
    "risk": lambda attention: TASK.risk(attention, 100),
    "gradient_flow": lambda attention: (
        lp.gradient_flow(TASK, attention, 100, 0.2, times=[0.1], tolerance=1e-3, **FLOW).risk
    ),
    "gradient_descent": lambda attention: (
        lp.gradient_descent(TASK, attention, 100, 0.1, 3, **FLOW).risk
    ),
    "sgd": lambda attention: (
        lp.stochastic_gradient_descent(TASK, attention, 10, 0.1, 3, 4, 0, **FLOW).risk
    ),
    "tube": lambda attention: (
        lp.training.tube(TASK, attention, [10], 0.2, times=[0.1], tolerance=1e-3, **FLOW).distance
    ),
}  # training is in double precision, whatever the layer


def single(attention, mu, z):
    return attention.to(torch.float32), mu.to(torch.float32), z.float()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", WITH_LAW)
def test_single_precision_is_accepted_everywhere(name, law):
    """Arguments that are all float32, as PyTorch makes them: the same numbers, to the digits that
    float32 has.
    """
    arguments = LAYER, LAWS[law], torch.tensor([1.0, 0.5], dtype=F)
    expected, found = (
        torch.as_tensor(WITH_LAW[name](*each)) for each in (arguments, single(*arguments))
    )
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in WITH_LAW if name not in ("to", "tilts")])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["layer", "law", "query"])
def test_a_mixture_of_precisions_is_promoted(name, which):
    """One argument in float32 next to two in float64: computed in float64."""
    if name == "affine_limit" and which == 2:
        return  # the query does not enter the library
    values = [LAYER, LAWS["Gaussian"], torch.tensor([1.0, 0.5], dtype=F)]
    expected = torch.as_tensor(WITH_LAW[name](*values))
    values[which] = single(*values)[which]
    found = torch.as_tensor(WITH_LAW[name](*values))
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", WITH_LAYER)
def test_layers_in_single_precision_are_trained_in_double(name):
    found, expected = (
        torch.as_tensor(WITH_LAYER[name](layer)) for layer in (BLOCK.to(torch.float32), BLOCK)
    )
    assert found.dtype == F
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


NARROW = torch.eye(2)  # float32
WIDE = torch.eye(2, dtype=F)


@pytest.mark.parametrize(
    "made",
    [
        lambda a, b: lp.Gaussian(a[0], b).covariance,
        lambda a, b: lp.SoftmaxAttention(a, b).V,
        lambda a, b: lp.SoftmaxAttention.from_projections(a, b, a).U,
        lambda a, b: lp.GaussianMixture([0.5, 0.5], a, torch.stack([b, b])).means,
        lambda a, b: lp.Discrete(a, b.mean(0)).weights,
        lambda a, b: lp.Empirical(a, b.mean(0)).tokens,
        lambda a, b: lp.Empirical(a).merge(lp.Empirical(b)).tokens,
        lambda a, b: lp.Empirical(a).cgf(b),
        lambda a, b: lp.Rademacher(2).to(a.dtype).tilted_mean(b),
        lambda a, b: lp.Gaussian(a[0], a).map(b).mean,
        lambda a, b: lp.Gaussian(a[0], a).tilt(b).mean,
        lambda a, b: lp.Gaussian(a[0], a).norm_moment4(b[0]),
        lambda a, b: lp.Gaussian(a[0].numpy(), b.numpy()).mean,
    ],
)
@pytest.mark.parametrize("order", [(NARROW, WIDE), (WIDE, NARROW)], ids=["narrow", "wide"])
def test_float32_next_to_float64_is_promoted(made, order):
    found, expected = made(*order), made(WIDE, WIDE)
    assert found.dtype == F
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


class Marked(torch.Tensor):
    """A stranger's tensor whose text cannot be made."""

    def __repr__(self, *, tensor_contents=None):
        raise RuntimeError


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, F])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinities_are_refused_in_every_precision(dtype, value):
    with pytest.raises(lp.InvalidArgumentError, match="x: got 1 NaN or infinite of 2 entries"):
        validation.tensor("x", torch.tensor([1.0, value], dtype=dtype))


UNUSUAL = {
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "float8": lambda: torch.ones(2).to(torch.float8_e4m3fn),
    "sparse": lambda: torch.eye(2).to_sparse(),
}


@pytest.mark.filterwarnings("ignore:.*deprecated", "ignore:.*nested tensors")
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_tensors_are_refused_by_name_at_every_door(kind):
    value = UNUSUAL[kind]()
    for call in (
        lambda: lp.Gaussian(value, torch.eye(2)),
        lambda: lp.Gaussian([0.0, 0.0], WIDE).cgf(value),
        lambda: lp.Empirical(value),
        lambda: lp.SoftmaxAttention(value, value),
        lambda: LAYER(LAWS["Gaussian"], value),
        lambda: lp.finite_prompt(LAYER, LAWS["Gaussian"], value, 10),
    ):
        with pytest.raises(lp.InvalidArgumentError, match="allowed: "):
            call()


def test_subclasses_of_tensors_come_in_as_plain_ones_and_are_named_in_errors():
    found = validation.tensor("x", torch.ones(2).as_subclass(Marked))
    assert type(found) is torch.Tensor
    assert validation.text(torch.ones(2).as_subclass(Marked)) == (
        "Marked of torch.float32, shape (2,)"
    )
    assert validation.text(torch.tensor(1.0).as_subclass(Marked)) == "Marked"
    with pytest.raises(lp.InvalidArgumentError, match=r"u: got shape \(3,\)"):
        LAWS["signs"].cgf(torch.ones(3).as_subclass(Marked))
