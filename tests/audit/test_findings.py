"""Verdicts of heads with planted laws."""

import dataclasses

import numpy as np
import pytest
import torch
import xarray as xr

from largeprompt.audit import FINDINGS, Heads, Rule, audit_heads, summary

RULE = Rule(tolerance=0.15)


def names(found):
    """Verdicts in words."""
    return [FINDINGS[code] if code >= 0 else "not judged" for code in found.finding.values.ravel()]


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("uniform", "uniform"),
        ("linear", "moments"),
        ("frozen", "selects"),
        ("skewed", "mixtures not tried"),
        ("mixture", "few clusters"),
        ("selects", "selects"),
    ],
)
def test_a_planted_head_gets_its_verdict(kind, finding, planted, audited):
    assert names(summary(audited(planted(kind), () if kind == "skewed" else (2, 4)), RULE)) == [
        finding
    ]


def test_another_shape_is_said_only_where_mixtures_were_tried(planted, audited):
    data = audited(planted("skewed"), (1,))
    assert float(data.mixture_1_error.median()) > RULE.tolerance
    assert names(summary(data, RULE)) == ["other shape"]


def test_planted_moments_come_back(planted, audited):
    data = audited(planted("linear"), ())
    np.testing.assert_allclose(data.score_variance.values, 0.3 * 399 / 400, rtol=1e-9)
    assert set(np.unique(data.regime)) == {0}
    assert set(np.unique(audited(planted("frozen"), ()).regime)) == {2}


def at_lengths(made, lengths=(256, 512, 2048)):
    """An audit of heads that ``made(tokens)`` gives, by length."""
    parts = [audit_heads(made(tokens), positions=range(16), components=()) for tokens in lengths]
    return xr.concat(parts, xr.Variable("length", list(lengths)), join="outer", data_vars="all")


@pytest.fixture(scope="module")
def gaussian():
    """Eight heads of Gaussian keys and values, whose error is length alone, at three lengths; two
    texts.
    """

    def made(tokens, count=8, width=8):
        generator = torch.Generator().manual_seed(0)
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        mixing, direction = draw(count, 2 * width, 2 * width) / 4, draw(count, 16, width)
        spread = (
            ((direction @ (mixing.mT @ mixing)[:, :width, :width]) * direction)
            .sum(-1, keepdim=True)
            .sqrt()
        )
        query = torch.zeros(2, count, tokens, width, dtype=torch.float64)
        query[:, :, :16] = 3**0.5 * direction / spread
        joint = draw(2, count, tokens, 2 * width) @ mixing
        return Heads(query, joint[..., :width], joint[..., width:] + 0.3, None, 1.0)

    return at_lengths(made)


def test_a_longer_prompt_is_asked_for_where_such_predictions_came_true(gaussian):
    found = summary(gaussian, RULE)
    assert int(found.predictions_made) >= 5
    assert int(found.predictions_kept) >= 0.8 * int(found.predictions_made)
    assert float(found.predictions_close) > 0.5
    middle = found.sel(length=512)
    asked = names(middle).count("needs a longer prompt")
    assert asked >= 4
    assert bool((middle.needed_length > 512).all())
    assert bool((found.sel(length=2048).affine_error <= 0.15).sum() >= asked)
    seen, predicted = (found[name].sel(length=2048) for name in ("affine_error", "predicted_error"))
    assert 0.75 < float((predicted / seen).median()) < 1.33
    assert float(found.shape_share.sel(length=2048).median()) < 0.5


def test_the_verdict_is_not_given_without_proof_or_beyond_what_the_model_reads(gaussian):
    # nothing was tested
    assert "needs a longer prompt" not in names(summary(gaussian.sel(length=512), RULE))
    assert "needs a longer prompt" not in names(
        summary(gaussian, dataclasses.replace(RULE, trials=10**6))
    )
    out = summary(gaussian.assign_attrs(positions_allowed=2048), RULE)
    far = out.needed_length > 2048
    assert bool(far.any())
    np.testing.assert_array_equal(out.out_of_reach, far)
    assert FINDINGS.index("needs a longer prompt") not in out.finding.where(far, -1)


def test_a_row_never_contradicts_itself(gaussian):
    found = summary(gaussian, RULE)
    within = found.affine_error <= 0.15
    length = found.length.broadcast_like(within).transpose(*within.dims)
    assert bool((found.needed_length == length).where(within, True).all())
    assert bool(
        (found.needed_length > length).where(~within & found.needed_length.notnull(), True).all()
    )
    assert bool(
        (found.shape_error <= found.affine_error * (1 + 1e-9))
        .where(found.shape_error.notnull(), True)
        .all()
    )


def test_shape_is_not_called_length(planted):
    """Exponential keys: the error stays however many there are."""
    found = summary(at_lengths(lambda tokens: planted("skewed", tokens=tokens, texts=2)), RULE)
    assert found.shape_share.sel(length=2048).item() > 0.8
    assert "needs a longer prompt" not in names(found)


def test_causal_prefixes_of_256_tokens_already_predict(random_heads):
    """The median query of 256 tokens sees 144 keys; there are predictions for 512, and something to
    compare them with.
    """
    parts = [
        audit_heads(random_heads(tokens=tokens, causal=True), positions=16, components=())
        for tokens in (256, 512)
    ]
    found = summary(
        xr.concat(parts, xr.Variable("length", [256, 512]), join="outer", data_vars="all")
    )
    assert bool(found.predicted_error.sel(length=512).notnull().all())
    assert 0 <= float(found.predictions_close) <= 1


@pytest.mark.filterwarnings("error")
def test_a_text_of_three_tokens_gives_no_warning(planted):
    heads = planted("linear", tokens=20, texts=1)
    short = Heads(heads.query[:, :, :3], heads.key[:, :, :3], heads.value[:, :, :3], None, 1.0)
    found = summary(audit_heads(short, components=()))
    assert names(found) == ["not judged"]
    assert bool(found.law_slope.isnull().all())


def test_errors_have_standard_errors_over_texts(gaussian):
    at = gaussian.sel(length=512)
    found = summary(at, RULE)
    medians = at.affine_error.median("position").values
    np.testing.assert_allclose(found.affine_error_bar, medians.std(0, ddof=1) / 2**0.5)
    assert bool(summary(at.isel(text=[0]), RULE).affine_error_bar.isnull().all())


def test_nothing_is_judged_below_64_tokens(planted):
    for tokens, judged in ((63, False), (64, True)):
        found = summary(
            audit_heads(
                planted("linear", tokens=tokens, texts=1), positions=range(16), components=(2,)
            )
        )
        assert (names(found) != ["not judged"]) == judged


def test_the_order_is_that_of_the_errors(gaussian):
    found = summary(gaussian, RULE).isel(length=0, layer=0)
    assert found.affine_error.values[np.argsort(found.order.values)].tolist() == sorted(
        found.affine_error.values
    )
    assert sorted(found.order.values) == list(range(1, 9))
    assert found.finding.attrs["flag_meanings"].split()[1:] == [
        name.replace(" ", "_") for name in FINDINGS
    ]
    assert len(found.finding.attrs["flag_values"]) == len(FINDINGS) + 1
