"""Statistics of heads on bare tensors, against their definitions and against planted laws."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from largeprompt.audit import FINDINGS, Heads, Rule, audit_heads, head_statistics, module_heads, read_out, summary
from largeprompt.audit.clusters import responsibilities
from largeprompt.audit.expected import Moments, expected_affine_error, expected_output, needed_length
from largeprompt.audit.findings import derived
from largeprompt.audit.own_moments import own_moment_error
from largeprompt.audit.readouts import chosen_heads
from largeprompt.errors import InvalidArgumentError

DIMS = ("text", "layer", "head", "position")


def random_heads(seed=0, batch=2, heads=4, groups=2, tokens=50, width=5, values=3, causal=False, mask=None):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    query, key = draw(batch, heads, tokens, width), draw(batch, groups, tokens, width)
    return Heads(query, key, draw(batch, groups, tokens, values), mask, 0.4, causal)


def one_by_one(heads, text, head, position):
    """Scores and values that one query sees, by the definition."""
    group = head // (heads.count // heads.groups)
    key, value = heads.key[text, group], heads.value[text, group]
    scores = heads.scale * key @ heads.query[text, head, position]
    allowed = torch.ones(len(key), dtype=torch.bool)
    if heads.mask is not None:
        allowed = heads.mask.expand(heads.batch, heads.count, -1, -1)[text, head, position]
    elif heads.causal:
        allowed = torch.arange(len(key)) <= position
    return scores[allowed], value[allowed]


def masks(tokens):
    lower = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    window = lower & ~torch.ones(tokens, tokens, dtype=torch.bool).tril(-13)
    padded = torch.ones(2, 1, tokens, tokens, dtype=torch.bool)
    padded[1, :, :, 40:] = False
    return {"plain": None, "window": window[None, None], "padded": padded}


@pytest.mark.parametrize("kind", ["plain", "causal", "window", "padded"])
def test_statistics_are_their_definitions(kind):
    heads = random_heads(causal=kind == "causal", mask=masks(50).get(kind))
    positions = torch.tensor([9, 30, 49])
    found = head_statistics(heads, positions)
    for text, head, index in ((0, 0, 0), (1, 3, 2), (0, 2, 1)):
        scores, value = one_by_one(heads, text, head, int(positions[index]))
        weights = torch.softmax(scores, 0)
        output, mean = weights @ value, value.mean(0)
        centred = scores - scores.mean()
        affine = mean + (centred[:, None] * value).mean(0)
        third = ((centred**2)[:, None] * (value - mean)).mean(0)
        fourth = ((centred**3)[:, None] * (value - mean)).mean(0) - 3 * centred.square().mean() * (affine - mean)
        expected = {
            "tokens": len(scores),
            "score_variance": scores.var(correction=0),
            "weight_square": weights.square().sum(),
            "entropy": -(weights * weights.log()).sum(),
            "largest_weight": weights.max(),
            "sandwich": (weights.square() * (value - output).square().sum(-1)).sum(),
            "output": output.square().sum(),
            "mean_error": (output - mean).square().sum(),
            "affine_error": (output - affine).square().sum(),
            "third_error": (output - affine - third / 2).square().sum(),
            "fourth_error": (output - affine - third / 2 - fourth / 6).square().sum(),
            "value_spread": (value - mean).square().sum(-1).mean(),
            "mass_affine": torch.logsumexp(scores, 0) - math.log(len(scores)) - scores.mean() - scores.var(correction=0) / 2,
        }
        for name, want in expected.items():
            assert float(found[name][text, head, index]) == pytest.approx(float(want), rel=1e-9, abs=1e-12), name


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), shift=st.floats(-3, 3))
def test_errors_do_not_depend_on_a_shift_of_the_keys(seed, shift):
    """Softmax does not see it; neither do the read-outs."""
    heads = random_heads(seed, tokens=20)
    moved = Heads(heads.query, heads.key + shift, heads.value, None, heads.scale)
    positions = torch.arange(0, 20, 5)
    for name in ("affine_error", "third_error", "weight_square", "mass_affine"):
        one, other = head_statistics(heads, positions)[name], head_statistics(moved, positions)[name]
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-10)


def test_chunks_do_not_change_the_numbers(monkeypatch):
    heads = random_heads(causal=True)
    whole = head_statistics(heads, torch.arange(50), (2,))
    monkeypatch.setattr("largeprompt.audit.heads.CHUNK_NUMBERS", 3000)
    pieces = head_statistics(heads, torch.arange(50), (2,))
    for name, values in whole.items():
        torch.testing.assert_close(values, pieces[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["plain", "causal", "window", "padded"])
@pytest.mark.parametrize("read", ["mean", "affine"])
def test_running_moments_give_the_read_out_of_every_prefix(kind, read, monkeypatch):
    monkeypatch.setattr("largeprompt.audit.readouts.CHUNK", 16)
    heads = random_heads(causal=kind == "causal", mask=masks(50).get(kind))
    given = read_out(heads, read)
    for text, head, position in ((0, 0, 7), (1, 3, 49), (0, 2, 16), (1, 1, 15)):
        scores, value = one_by_one(heads, text, head, position)
        want = value.mean(0) + ((scores - scores.mean())[:, None] * value).mean(0) * (read == "affine")
        torch.testing.assert_close(given[text, head, position], want, rtol=1e-10, atol=1e-10)


def test_one_component_is_the_affine_read_out_and_all_components_are_exact():
    heads = random_heads(tokens=12)
    torch.testing.assert_close(read_out(heads, "mixture", 1, sinks=0), read_out(heads, "affine"), rtol=1e-9, atol=1e-9)
    exact = torch.nn.functional.scaled_dot_product_attention(
        heads.query, heads.key, heads.value, scale=heads.scale, enable_gqa=True
    )
    torch.testing.assert_close(read_out(heads, "mixture", 1, sinks=12), exact, rtol=1e-9, atol=1e-9)


def test_few_heads_are_those_of_the_whole():
    heads = random_heads(causal=True)
    torch.testing.assert_close(read_out(chosen_heads(heads, [1, 3]), "affine"), read_out(heads, "affine")[:, [1, 3]])


def test_own_moment_error_against_sampling():
    """False alarms below 1e-8: 5.7 standard errors, twelve comparisons."""
    generator = torch.Generator().manual_seed(3)
    for length, q in ((2, 0.5), (10, 1.0), (40, 1.0), (40, 4.0), (200, 2.0), (200, 0.05)):
        xi = torch.randn(40_000, length, generator=generator, dtype=torch.float64)
        sigma, middle = math.sqrt(q), xi.mean(-1, keepdim=True)
        weights = torch.softmax(sigma * xi, -1)
        along = ((weights * xi).sum(-1) - middle.squeeze(-1) - sigma * xi.var(-1, correction=0)) ** 2
        across = (weights - (1 + sigma * (xi - middle)) / length).square().sum(-1)
        for drawn, exact in zip((along, across), own_moment_error(length, q), strict=True):
            assert abs(float(drawn.mean() - exact)) < 6 * float(drawn.std()) / math.sqrt(len(drawn))


def test_own_moment_error_of_one_token_and_bad_input():
    assert [float(value) for value in own_moment_error(1, 2.0)] == [0.0, 0.0]
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(InvalidArgumentError, match="score_variance"):
            own_moment_error(10, bad)


def test_the_table_of_the_law_is_the_law():
    variance = np.array([1e-3, 0.1, 0.5, 2.0, 7.0, 30.0, 300.0])
    for length in (2, 30, 512, 8192):
        along, across = (value.numpy() for value in own_moment_error(length, variance))
        tilt, spread = 0.3 * variance, 2.0
        found = expected_affine_error(np.full(len(variance), length), variance, tilt, np.full(len(variance), spread))
        np.testing.assert_allclose(found, along * 0.3 + across * (spread - 0.3), rtol=2e-3)


def moments(tokens=1e9, score_variance=1.0, mean_square=1.0, mean_tilt=0.0, tilt=0.5, value_spread=1.0):
    """One head's moments as arrays; of so many tokens that chance adds nothing."""
    return Moments(
        *(
            np.atleast_1d(np.array(each, dtype=float))
            for each in (tokens, score_variance, mean_square, mean_tilt, tilt, value_spread)
        )
    )


def test_the_expected_output_is_that_of_drawn_prompts():
    """E‖T_L‖² for values v = m + c s/q + noise, s ~ N(0, q), against 40,000 drawn prompts: within 6 standard errors."""
    generator = torch.Generator().manual_seed(3)
    q, length, m, c = 2.0, 12, torch.tensor([0.5, -0.2], dtype=torch.float64), torch.tensor([0.8, 0.3], dtype=torch.float64)
    s = math.sqrt(q) * torch.randn(40_000, length, generator=generator, dtype=torch.float64)
    v = m + s[..., None] * c / q + 0.4 * torch.randn(40_000, length, 2, generator=generator, dtype=torch.float64)
    drawn = (torch.softmax(s, -1)[..., None] * v).sum(1).square().sum(-1)
    spread = float((c**2).sum() / q + 2 * 0.16)
    found = expected_output(length, moments(1e9, q, float(m @ m), float(m @ c), float(c @ c), spread))[0]
    assert abs(float(drawn.mean()) - found) < 6 * float(drawn.std()) / 200


def test_needed_length_is_where_the_law_comes_within_the_tolerance():
    both = moments([1e9] * 3, [0.5, 2.0, np.nan], [1.0] * 3, [0.0] * 3, [0.2, 0.5, 0.1], [1.0] * 3)
    needed = needed_length(both, 0.03)
    assert np.isnan(needed[2])
    for value, q, tilt in zip(needed[:2], (0.5, 2.0), (0.2, 0.5), strict=True):
        for length, within in ((value, True), (value / 2, False)):
            error = expected_affine_error(np.array([length]), np.array([q]), np.array([tilt]), np.array([1.0]))
            assert (error[0] <= 0.03**2 * expected_output(length, moments(1e9, q, 1.0, 0.0, tilt, 1.0))[0]) == within
    assert np.isinf(needed_length(moments(score_variance=60.0, tilt=1.0, value_spread=2.0), 0.1)[0])


def test_no_length_helps_a_head_whose_keys_tell_nothing_of_its_values():
    """Output and error vanish alike; what a finite prompt adds to its moments by chance is seen through."""
    for tokens in (64, 512, 4096):
        chance = moments(tokens, 1.0, 1 / tokens, 0.0, 1 / tokens, 1.0)
        assert np.isinf(needed_length(chance, 0.2)[0])


def test_the_prediction_does_not_move_with_the_length_it_is_made_at():
    needed = []
    for tokens in (256, 1024, 4096):
        heads = planted("short", tokens=tokens, texts=12, seed=5)
        needed.append(float(summary(audited(heads, ()), Rule(tolerance=0.15)).needed_length.item()))
    assert max(needed) <= 2 * min(needed)


def planted(kind, tokens=400, width=8, texts=6, seed=0):
    """Heads whose keys and values have a known law; the queries give the score variance."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    mixing = draw(2 * width, 2 * width) / math.sqrt(2 * width)
    joint = draw(texts, 1, tokens, 2 * width) @ mixing
    if kind == "mixture":
        place = torch.randint(0, 3, (texts, 1, tokens, 1), generator=generator)
        joint = 0.3 * joint + 3 * draw(1, 1, 3, 2 * width).gather(
            2, place.expand(-1, -1, -1, 2 * width).clamp_max(2)[:1]
        ).expand_as(joint)
    key, value = joint[..., :width], joint[..., width:] + 1.0
    direction = draw(texts, 1, 16, width)
    if kind == "skewed":  # exponential keys: many tokens are read
        key = -torch.log(torch.rand(texts, 1, tokens, width, generator=generator, dtype=torch.float64))
        value, direction = torch.cat([key**3, key], -1) @ mixing, draw(texts, 1, 16, width).abs()
    variance = {"skewed": 0.6, "linear": 0.3, "short": 6.0, "frozen": 30.0, "mixture": 4.0, "selects": 1.0}[kind]
    spread = (direction @ key.mT).var(-1, keepdim=True).sqrt()
    query = torch.cat([direction * math.sqrt(variance) / spread, torch.zeros(texts, 1, tokens - 16, width, dtype=torch.float64)], 2)
    if kind == "selects":  # a hidden token far out along the queries' common direction
        query[:, :, :16] = query[:, :, :1]
        key[:, :, 200] += 14 * query[:, :, 0] / query[:, :, 0].square().sum(-1, keepdim=True)
    return Heads(query, key, value, None, 1.0)


def audited(heads, components=(2, 4)):
    raw = head_statistics(heads, torch.arange(16), components)
    data = xr.Dataset({name: (DIMS, value[:, None].numpy()) for name, value in raw.items()})
    return derived(data)


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("linear", "moments"),
        ("short", "needs a longer prompt"),
        ("frozen", "selects"),
        ("skewed", "other shape"),
        ("mixture", "few clusters"),
        ("selects", "selects"),
    ],
)
def test_a_planted_head_gets_its_verdict(kind, finding):
    heads = summary(audited(planted(kind), () if kind == "skewed" else (2, 4)), Rule(tolerance=0.15))
    assert FINDINGS[int(heads.finding.item())] == finding


def test_planted_moments_come_back():
    data = audited(planted("linear"), ())
    np.testing.assert_allclose(data.score_variance.values, 0.3 * 399 / 400, rtol=1e-9)
    assert set(np.unique(data.regime)) == {0}
    assert set(np.unique(audited(planted("frozen"), ()).regime)) == {2}


def test_the_law_explains_all_of_a_gaussian_head_and_little_of_another():
    """Ratio of measured to expected squared error, mean over independent texts: Gaussian tokens give 1 within sampling error."""
    for kind in ("linear", "short", "frozen"):
        heads = planted(kind, texts=400, tokens=100, seed=1)
        raw = head_statistics(heads, torch.arange(1))
        expected = expected_affine_error(*(raw[name].numpy() for name in ("tokens", "score_variance", "tilt", "value_spread")))
        ratio = raw["affine_error"].numpy()[:, 0, 0] / expected[:, 0, 0]
        # fluctuating moments of the sample shift the expectation by O(1/L): 5 % at L = 100
        assert abs(ratio.mean() - 1) < 0.08 + 5 * ratio.std() / math.sqrt(len(ratio)), kind
    data = audited(planted("selects"), ())
    assert float(data.law_share.median()) < 0.3


def test_responsibilities_sum_to_one_and_forget_padding():
    heads = random_heads(mask=masks(50)["padded"])
    member = responsibilities(heads, (3,), sinks=2)[3]
    assert member.shape == (2, 2, 50, 5)
    torch.testing.assert_close(member[0].sum(-1), torch.ones(2, 50, dtype=torch.float64))
    assert float(member[1, :, 40:].abs().max()) == 0


def test_torch_module_outside_transformers():
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    tokens = torch.randn(2, 9, 12, dtype=torch.float64)
    heads = module_heads(module, tokens)
    exact = torch.cat([rows.read(rows.weights()[0]) for _, rows in heads.rows(torch.arange(9))], 2)
    torch.testing.assert_close(module.out_proj(exact.transpose(1, 2).flatten(2)), module(tokens, tokens, tokens)[0])
    sideways = torch.nn.MultiheadAttention(12, 3, dtype=torch.float64)
    sideways.load_state_dict(module.state_dict())
    torch.testing.assert_close(module_heads(sideways, tokens.transpose(0, 1)).query, heads.query)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 6:] = True
    added = torch.randn(9, 9, dtype=torch.float64)
    for options in (
        {"key_padding_mask": padding},
        {"attn_mask": added},
        {"attn_mask": torch.ones(9, 9, dtype=torch.bool).triu(1), "key_padding_mask": padding},
        {"attn_mask": torch.randn(6, 9, 9, dtype=torch.float64)},
        {"causal": True},
    ):
        module_heads(module, tokens, **options)  # which compares its output with the module's
    module.dropout = 0.5
    module_heads(module.train(), tokens)
    with pytest.raises(InvalidArgumentError, match="causal"):
        module_heads(module, tokens, causal=True, attn_mask=added)
    for bad in (torch.zeros(2, 9, 5), torch.zeros(9, 12)):
        with pytest.raises(InvalidArgumentError, match="tokens"):
            module_heads(module, bad)
    with pytest.raises(InvalidArgumentError, match="module"):
        module_heads(torch.nn.Linear(3, 3), tokens)
    with pytest.raises(InvalidArgumentError, match="module"):
        module_heads(torch.nn.MultiheadAttention(12, 3, add_zero_attn=True), tokens)


def test_bad_heads_are_refused():
    good = random_heads()
    with pytest.raises(InvalidArgumentError, match="four dimensions"):
        Heads(good.query[0], good.key, good.value, None, 1.0)
    with pytest.raises(InvalidArgumentError, match="heads a multiple"):
        Heads(good.query[:, :3], good.key, good.value, None, 1.0)
    with pytest.raises(InvalidArgumentError, match="mask"):
        Heads(good.query, good.key, good.value, torch.ones(2, 1, 50, 49, dtype=torch.bool), 1.0)
    with pytest.raises(InvalidArgumentError, match="mask: got dtype"):
        Heads(good.query, good.key, good.value, torch.ones(1, 1, 50, 50, dtype=torch.int64), 1.0)
    with pytest.raises(InvalidArgumentError, match="kind"):
        read_out(good, "cubic")


def test_bare_tensors_get_verdicts():
    data = audit_heads(planted("linear"), positions=list(range(16)), components=())
    assert dict(data.sizes) == {"text": 6, "layer": 1, "head": 1, "position": 16}
    assert FINDINGS[int(summary(data).finding.item())] == "moments"
    learning = dataclasses.replace(planted("linear"), value=planted("linear").value.requires_grad_())
    assert bool(audit_heads(learning, positions=4, components=()).affine_error.notnull().all())
    with pytest.raises(InvalidArgumentError, match="positions"):
        audit_heads(planted("linear"), positions=[400])


@pytest.mark.parametrize("name", ["mixture_4_error", "affine_error", "sandwich", "entropy"])
def test_single_precision_survives_scores_far_from_zero(name):
    """Keys with a large common part, and a head that reads next to one token."""
    for offset, scale in ((300.0, 1.0), (0.0, 40.0)):
        heads = random_heads(tokens=60, seed=4)
        heads = dataclasses.replace(heads, key=heads.key + offset, scale=scale * heads.scale)
        single = Heads(*(each.to(torch.float32) for each in (heads.query, heads.key, heads.value)), None, heads.scale)
        again = Heads(*(each.to(torch.float64) for each in (single.query, single.key, single.value)), None, heads.scale)
        found, exact = (head_statistics(each, torch.arange(0, 60, 7), (4,), 1)[name] for each in (single, again))
        size = exact.abs().amax()
        assert float((found - exact).abs().max() / size) < 2e-2, (offset, scale)
