"""Verdicts of heads with planted laws."""

import numpy as np
import pytest
import torch
import xarray as xr

from largeprompt.audit import FINDINGS, Heads, Rule, audit_heads, summary
from largeprompt.audit.findings import replacement_order

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


@pytest.mark.filterwarnings("error")
def test_a_text_of_three_tokens_gives_no_warning(planted):
    heads = planted("linear", tokens=20, texts=1)
    short = Heads(heads.query[:, :, :3], heads.key[:, :, :3], heads.value[:, :, :3], None, 1.0)
    found = summary(audit_heads(short, components=()))
    assert names(found) == ["not judged"]


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


def test_the_order_of_replacement_needs_no_summary(gaussian):
    order = summary(gaussian).isel(length=-1).order.stack(pair=("layer", "head"))
    pairs = [(int(i), int(j)) for i, j in order.sortby(order).pair.values.tolist()]
    assert replacement_order(gaussian) == pairs
    some = gaussian.isel(length=-1).assign_coords(layer=[3])
    some = some.sel(head=[5, 2, 7])
    error = some.affine_error.median(["text", "position"]).values[0]
    assert replacement_order(some) == [(3, [5, 2, 7][place]) for place in np.argsort(error)]
