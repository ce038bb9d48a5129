"""Nested prompts, token by token: against attention on the same tokens, and what must not change
what.
"""

import itertools
import math

import pytest
import torch
from matplotlib.figure import Figure
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.sampling import PromptSamples, sample_prompts, streams
from largeprompt.testing import assert_sample_mean

EYE = [[1.0, 0.0], [0.0, 1.0]]
ATTENTION = lp.SoftmaxAttention([[0.8, 0.3], [-0.2, 1.1]], [[1.0, 2.0], [0.0, 1.0], [0.5, -1.0]])
Z = torch.tensor([[0.7, -0.4], [0.0, 0.0], [1.5, 1.0]], dtype=torch.float64)
LAWS = {
    "Gaussian": lp.Gaussian([0.5, -1.0], [[2.0, 0.6], [0.6, 0.5]]),
    "Rademacher": lp.Rademacher(2),
    "StudentT": lp.StudentT(2, df=3.0),
    "Discrete": lp.Discrete([[0.0, 1.0], [2.0, 0.5]], [0.3, 0.7]),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def stream(mu, length, seed=0):
    return streams.TokenStream(mu, length, streams.draw_seed(seeded(seed)))


def prompt(mu, length, replica):
    """The whole prompt of one replica, shape (length, d)."""
    tokens = stream(mu, length)
    block, row = divmod(replica, tokens.grid.replicas)
    drawn = torch.cat([tokens.cell(block, cell)[row] for cell in range(tokens.grid.cells)])
    return drawn if tokens.root is None else mu.mean + drawn @ tokens.root.mT


@pytest.fixture
def small_cells(monkeypatch):
    """Cells of few numbers, so that a short prompt crosses many of them."""
    monkeypatch.setitem(streams.CELL_SCALARS, "cpu", 24)


@pytest.mark.parametrize("mu", LAWS.values(), ids=LAWS)
def test_outputs_are_attention_on_the_prefixes(mu):
    lengths = (1, 2, 17, 60)
    samples = sample_prompts(ATTENTION, mu, Z, lengths, 5, seeded())
    assert samples.outputs.shape == (4, 5, 3, 3)
    for replica in range(5):
        tokens = prompt(mu, 60, replica)
        for i, length in enumerate(lengths):
            assert_close(
                samples.outputs[i, replica],
                ATTENTION(lp.Empirical(tokens[:length]), Z),
                rtol=1e-11,
                atol=1e-12,
            )


@pytest.mark.usefixtures("small_cells")
def test_outputs_are_attention_on_the_prefixes_across_cells():
    mu, lengths = LAWS["Gaussian"], (1, 5, 11, 12, 13, 40, 53)
    assert streams.Grid(53, 2).cells == 5
    samples = sample_prompts(ATTENTION, mu, Z, lengths, 3, seeded(), jacobian=True)
    for replica in range(3):
        tokens = prompt(mu, 53, replica)
        assert tokens.shape == (53, 2)
        for i, length in enumerate(lengths):
            prefix = lp.Empirical(tokens[:length])
            assert_close(samples.outputs[i, replica], ATTENTION(prefix, Z), rtol=1e-11, atol=1e-12)
            derivative = samples.readout_jacobian[i, replica].unsqueeze(-1) * Z[:, None, None, :]
            assert_close(derivative, ATTENTION.jacobian_u(prefix, Z), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("u_heads", "v_heads"),
    [((), ()), ((2,), (2,)), ((2,), ()), ((), (2,)), ((3, 1), (2,)), ((1, 2), (3, 1))],
)
@pytest.mark.parametrize("queries", [(), (4,), (2, 3), (0,)])
def test_heads_and_queries_share_the_tokens(u_heads, v_heads, queries):
    draw = seeded(1)
    U, V, z = (
        torch.randn(*s, generator=draw, dtype=torch.float64)
        for s in ((*u_heads, 2, 2), (*v_heads, 3, 2), (*queries, 2))
    )
    attention = lp.SoftmaxAttention(U, V)
    samples = sample_prompts(attention, lp.Rademacher(2), z, (3, 8), 4, seeded(), jacobian=True)
    assert samples.outputs.shape == (2, 4, *attention.heads, *queries, 3)
    assert samples.readout_jacobian.shape == (2, 4, *attention.heads, *queries, 3, 2)
    for replica in range(4):
        tokens = lp.Empirical(prompt(lp.Rademacher(2), 8, replica))
        assert_close(samples.outputs[1, replica], attention(tokens, z), rtol=1e-11, atol=1e-12)
        derivative = samples.readout_jacobian[1, replica].unsqueeze(-1) * z[..., None, None, :]
        assert_close(derivative, attention.jacobian_u(tokens, z), rtol=1e-10, atol=1e-12)


def test_reading_in_blocks_of_queries_changes_nothing(monkeypatch):
    whole = sample_prompts(ATTENTION, LAWS["Gaussian"], Z, (5, 30), 4, seeded(), jacobian=True)
    monkeypatch.setitem(streams.READ_SCALARS, "cpu", 1)
    parts = sample_prompts(ATTENTION, LAWS["Gaussian"], Z, (5, 30), 4, seeded(), jacobian=True)
    assert_close(parts.outputs, whole.outputs, rtol=1e-13, atol=1e-14)
    assert_close(parts.readout_jacobian, whole.readout_jacobian, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cell", [24, 2**18])
def test_seeds_replicas_and_lengths(monkeypatch, cell):
    monkeypatch.setitem(streams.CELL_SCALARS, "cpu", cell)

    def draw(lengths, replicas, seed=0):
        return sample_prompts(
            ATTENTION, LAWS["Gaussian"], Z, lengths, replicas, seeded(seed)
        ).outputs

    reference = draw((10, 100), 7)
    assert torch.equal(reference, draw((10, 100), 7))
    assert not torch.equal(reference, draw((10, 100), 7, seed=1))
    # more replicas come after the first
    assert_close(draw((10, 100), 40)[:, :7], reference, rtol=1e-13, atol=1e-14)
    assert_close(draw((10, 100), 1), reference[:, :1], rtol=1e-13, atol=1e-14)
    # lengths in between are only read
    assert_close(draw((10, 50, 100), 7)[::2], reference, rtol=1e-12, atol=1e-13)
    assert_close(draw(100, 7), reference[1:], rtol=1e-12, atol=1e-13)
    assert len(torch.unique(reference[1, :, 0, 0])) == 7


def test_one_number_is_drawn_from_the_generator():
    first, second = seeded(), seeded()
    sample_prompts(ATTENTION, lp.Rademacher(2), Z, 5, 1, first)
    sample_prompts(ATTENTION, lp.Rademacher(2), Z, (1, 50), 300, second)
    assert torch.equal(first.get_state(), second.get_state())
    again = sample_prompts(ATTENTION, lp.Gaussian([0.0, 0.0], EYE), Z, 5, 1, first)
    assert not torch.equal(
        again.outputs,
        sample_prompts(ATTENTION, lp.Gaussian([0.0, 0.0], EYE), Z, 5, 1, first).outputs,
    )


def test_cells_cover_each_prompt_once():
    for length in (1, 2, 7, 100, 2**16, 2**16 + 1, 10**8):
        for width in (1, 3, 4, 2**18, 2**20):
            grid = streams.Grid(length, width)
            assert grid.replicas * grid.tokens * width <= max(streams.CELL_SCALARS["cpu"], width)
            if grid.cells > 10**4:
                continue
            spans = [grid.span(cell) for cell in range(grid.cells)]
            assert spans[0][0] == 0
            assert spans[-1][1] == length
            assert all(start < stop for start, stop in spans)
            assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))


def test_cells_have_generators_of_their_own():
    cells = [
        stream(lp.Gaussian([0.0], [[1.0]]), 2**21).cell(block, cell)[0, 0, 0]
        for block in (0, 1, 2)
        for cell in (0, 1)
    ]
    assert len(set(map(float, cells))) == 6


def test_moments_without_scores():
    """At u = 0 the output is the average: mean m, covariance Γ/L, and Cov(T_L, T_M) = Γ/M for L <
    M.
    """
    mu = LAWS["Gaussian"]
    attention = lp.SoftmaxAttention([[0.0, 0.0], [0.0, 0.0]], EYE)
    outputs = sample_prompts(attention, mu, [1.0, 1.0], (4, 10), 8000, seeded()).outputs - mu.mean
    assert_sample_mean(
        outputs.movedim(0, 1), torch.zeros(2, 2, dtype=torch.float64), false_alarm=1e-7
    )
    for first, second, length in ((0, 0, 4), (0, 1, 10), (1, 1, 10)):
        assert_sample_mean(
            outputs[first].unsqueeze(-1) * outputs[second].unsqueeze(-2),
            mu.covariance / length,
            false_alarm=1e-7,
        )


def test_one_token_is_the_token():
    eye = lp.SoftmaxAttention([[9.0, 1.0], [0.0, 3.0]], EYE)
    samples = sample_prompts(eye, LAWS["Gaussian"], Z[0], (1, 9), 50, seeded(), jacobian=True)
    tokens = torch.stack([prompt(LAWS["Gaussian"], 9, replica)[0] for replica in range(50)])
    assert_close(samples.outputs[0], tokens)
    assert_close(samples.readout_jacobian[0], torch.zeros(50, 2, 2, dtype=torch.float64))


def test_mean_squared_error():
    # one length, two replicas
    outputs = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]], dtype=torch.float64)
    mean, error = PromptSamples((5,), outputs).mse([0.0, 1.0])
    assert_close(mean, torch.tensor([3.0], dtype=torch.float64))  # of 2 and 4
    assert_close(error, torch.tensor([1.0], dtype=torch.float64))
    assert PromptSamples((5,), outputs[:, :1]).mse(0.0)[1] == math.inf
    samples = sample_prompts(ATTENTION, lp.Rademacher(2), Z, (10, 1000), 400, seeded())
    mean, error = samples.mse(ATTENTION(lp.Rademacher(2), Z))
    assert mean.shape == error.shape == (2, 3)
    assert bool((mean[1] < mean[0] / 20).all())
    for bad, message in (
        ([1.0, 2.0], "limit: got shape"),
        (torch.zeros(1, 3, 3).double(), "limit"),
    ):
        with pytest.raises(lp.InvalidArgumentError, match=message):
            samples.mse(bad)


def test_samples_draw_themselves_and_become_a_dataset():
    samples = sample_prompts(ATTENTION, lp.Rademacher(2), Z, (10, 1000), 50, 3)
    limit = ATTENTION(lp.Rademacher(2), Z)
    mean, error = samples.mse(limit)
    axes = samples.plot(limit, Figure().subplots())
    for query, bars in enumerate(axes.containers):
        assert_close(torch.tensor(bars.lines[0].get_ydata()), mean[:, query].sqrt())
        (segments,) = bars.lines[2]
        ends = torch.stack([torch.from_numpy(segment[:, 1]) for segment in segments.get_segments()])
        # two standard errors of the root
        assert_close((ends[:, 1] - ends[:, 0]) / 2, error[:, query] / mean[:, query].sqrt())
    assert (
        len(
            PromptSamples((5,), samples.outputs[:1, :1, 0])
            .plot(limit[0], Figure().subplots())
            .containers
        )
        == 1
    )
    # from the mean of the longest: their spread
    own = samples.plot(axes=Figure().subplots()).containers[0].lines[0].get_ydata()
    assert own[1] == pytest.approx(
        float(samples.outputs[1, :, 0].var(0, correction=0).sum().sqrt())
    )
    data = samples.to_xarray()
    assert data.output.values.tolist() == list(range(samples.outputs.shape[-1]))
    assert data.outputs.dims == ("length", "replica", "batch", "output")
    assert_close(torch.from_numpy(data.outputs.values), samples.outputs)
    assert torch.equal(
        samples.outputs,
        sample_prompts(ATTENTION, lp.Rademacher(2), Z, (10, 1000), 50, seeded(3)).outputs,
    )
    with pytest.raises(lp.InvalidArgumentError, match="limit: got shape"):
        samples.plot([1.0, 2.0])


def test_repr_is_one_line():
    samples = sample_prompts(ATTENTION, lp.Rademacher(2), Z, (1, 5), 2, seeded(), jacobian=True)
    assert (
        repr(samples)
        == "PromptSamples(lengths=(1, 5), replicas=2, outputs of shape (2, 2, 3, 3), with "
        "readout_jacobian)"
    )
    one = PromptSamples((1, 5), torch.tensor([[[0.0], [2.0]], [[0.0], [0.2]]], dtype=torch.float64))
    assert (
        repr(one)
        == "PromptSamples(lengths=(1, 5), replicas=2, outputs of shape (2, 2, 1), spread 1.4 to "
        "0.14)"
    )


def test_float32_and_no_graph():
    single = lp.SoftmaxAttention(ATTENTION.U.float().requires_grad_(), ATTENTION.V.float())
    samples = sample_prompts(
        single,
        LAWS["Gaussian"].to(dtype=torch.float32),
        Z.float(),
        (3, 20),
        4,
        seeded(),
        jacobian=True,
    )
    assert samples.outputs.dtype == samples.readout_jacobian.dtype == torch.float32
    assert not samples.outputs.requires_grad


GOOD = {
    "attention": ATTENTION,
    "mu": LAWS["Gaussian"],
    "z": Z,
    "lengths": (2, 5),
    "replicas": 3,
    "generator": seeded(),
}
HEADS = lp.SoftmaxAttention(torch.ones(2, 2, 2, dtype=torch.float64), EYE)
BAD = {
    "linear attention": (
        {"attention": lp.LinearAttention(EYE, EYE)},
        "attention: got LinearAttention",
    ),
    "no attention": ({"attention": None}, "attention: got NoneType"),
    "tokens for a law": ({"mu": torch.zeros(5, 2)}, "mu: got Tensor"),
    "a batch of laws": (
        {"mu": lp.Gaussian([[0.0, 0.0]] * 3, EYE)},
        r"mu: got a batch of laws of shape \(3,\)",
    ),
    "a law elsewhere": ({"mu": lp.Rademacher(3)}, "mu: got a measure on R"),
    "query of another size": ({"z": [1.0]}, "z: got shape"),
    "query of text": ({"z": "query"}, "z: got str"),
    "query not finite": ({"z": [math.nan, 0.0]}, "z: got 1 NaN"),
    "length zero": ({"lengths": 0}, "lengths: got 0"),
    "negative length": ({"lengths": (-1, 5)}, "lengths: got -1"),
    "no lengths": ({"lengths": ()}, r"lengths: got \(\)"),
    "lengths decrease": ({"lengths": (5, 2)}, r"lengths: got \(5, 2\)"),
    "lengths repeat": ({"lengths": [2, 2]}, r"lengths: got \(2, 2\)"),
    "fraction of a token": ({"lengths": 2.5}, "lengths: got 2.5"),
    "lengths of text": ({"lengths": "10"}, "lengths: got '1'"),
    "lengths missing": ({"lengths": None}, "lengths: got None"),
    "no replicas": ({"replicas": 0}, "replicas: got 0"),
    "half a replica": ({"replicas": 0.5}, "replicas: got 0.5"),
    "a word for a generator": ({"generator": "seed"}, "generator: got str"),
    "reduced is not a flag": ({"reduced": "yes"}, "reduced: got 'yes'"),
    "jacobian is not a flag": ({"jacobian": 1}, "jacobian: got 1"),
    "reduced Jacobian": (
        {"reduced": True, "jacobian": True},
        "jacobian: got True with reduced=True",
    ),
    "reduced heads": ({"reduced": True, "attention": HEADS}, r"attention: got heads \(2,\)"),
    "reduced Rademacher": (
        {"reduced": True, "mu": lp.Rademacher(2)},
        "mu: got Rademacher.*reduced=False",
    ),
    "reduced prompt": (
        {"reduced": True, "mu": lp.Empirical([[0.0, 1.0]])},
        "mu: got Empirical.*reduced=False",
    ),
}


@pytest.mark.parametrize(("changed", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused(changed, message):
    with pytest.raises(lp.InvalidArgumentError, match=message) as caught:
        sample_prompts(**{**GOOD, **changed})
    assert "allowed" in str(caught.value)


def test_refusals_draw_nothing():
    generator = seeded()
    with pytest.raises(lp.InvalidArgumentError):
        sample_prompts(ATTENTION, lp.Rademacher(2), Z, 5, 2, generator, reduced=True)
    assert torch.equal(generator.get_state(), seeded().get_state())


def test_threads_change_nothing(monkeypatch):
    monkeypatch.setitem(streams.CELL_SCALARS, "cpu", 24)
    mu = lp.Gaussian(torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
    attention = lp.SoftmaxAttention(
        torch.eye(2, dtype=torch.float64, requires_grad=True), torch.eye(2, dtype=torch.float64)
    )
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for reduced in (False, True):
            samples = lp.sample_prompts(attention, mu, [1.0, 0.5], (3, 30), 20, 0, reduced=reduced)
            assert not samples.outputs.requires_grad
            found.append(samples.outputs)
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[3])


def test_a_failing_block_stops_the_others():
    done = []

    def work(block, rows):
        if block == 1:
            raise ValueError("block 1")
        done.append(block)

    with pytest.raises(ValueError, match="block 1"):
        streams.side_by_side(
            work, [(block, slice(0, 1)) for block in range(4)], torch.device("cpu")
        )
