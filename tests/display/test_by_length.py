"""What results by prompt length show: a line or a table, a dataset, a picture."""

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch.testing import assert_close

import largeprompt as lp

F = torch.float64
EYE = torch.eye(2, dtype=F)
LAYER, LAW = lp.SoftmaxAttention(EYE, EYE), lp.Gaussian(0 * EYE[0], EYE)
Z, LENGTHS = [1.0, 0.5], [1, 10, 1000]
RESULTS = {
    "law": lambda z, length: lp.finite_prompt(LAYER, LAW, z, length),
    "certificate": lambda z, length: lp.certificate(LAYER, LAW, z, length),
    "average": lambda z, length: lp.query_average(
        LAYER, LAW, lp.Gaussian(0 * EYE[0], EYE / 4), length
    ),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_several_lengths_print_as_a_table_whose_columns_are_attributes(kind):
    found = RESULTS[kind](Z, LENGTHS)
    title, head, *rows = repr(found).splitlines()
    assert title.startswith(type(found).__name__ + "(")
    assert "3 lengths" in title
    assert [row.split()[0] for row in rows] == ["1", "10", "1,000"]
    assert all(hasattr(found, name) for name in head.split())
    place = head.split().index("rmse")
    np.testing.assert_allclose([float(row.split()[place]) for row in rows], found.rmse, rtol=5e-4)
    assert found._repr_html_().count("<tr>") == 4


@pytest.mark.parametrize("kind", RESULTS)
def test_one_length_prints_as_one_line_with_what_exists(kind):
    found = RESULTS[kind](Z, 100)
    assert "\n" not in repr(found)
    assert f"{float(found.rmse):.4g}" in repr(found)
    assert found._repr_html_().count("<tr>") == 2
    squared = found.bound if kind == "certificate" else found.mse
    assert_close(found.rmse.square(), squared)


@pytest.mark.parametrize("kind", ["law", "certificate"])
def test_a_batch_is_told_by_its_shape_and_not_computed_for_it(kind):
    found = RESULTS[kind](torch.ones(4, 2, dtype=F), LENGTHS)
    assert "batch=(4,)" in repr(found)
    assert found._repr_html_() is None


@pytest.mark.parametrize("kind", RESULTS)
def test_datasets_have_the_numbers_with_words_and_units(kind):
    found = RESULTS[kind](Z, LENGTHS)
    data = found.to_xarray()
    np.testing.assert_array_equal(data.rmse, found.rmse)
    assert data.length.values.tolist() == LENGTHS
    assert data.length.attrs == {"long_name": "prompt length", "units": "tokens"}
    assert all(
        value.attrs["long_name"] and value.attrs["units"] for value in data.variables.values()
    )
    assert data.length.dtype == np.int64
    assert RESULTS[kind](Z, 10).to_xarray().length.item() == 10


def test_dimensions_of_a_batch():
    one = RESULTS["law"](torch.ones(4, 2, dtype=F), LENGTHS).to_xarray()
    assert dict(one.sizes) == {"length": 3, "batch": 4, "output": 2}
    assert one.limit.dims == ("batch", "output")
    assert one.output.values.tolist() == [0, 1]
    assert one.regime.dtype.kind == "U"
    two = RESULTS["law"](torch.ones(4, 5, 2, dtype=F), 10).to_xarray()
    assert dict(two.sizes) == {"batch_0": 4, "batch_1": 5, "output": 2}


@pytest.mark.parametrize("kind", RESULTS)
def test_pictures_show_the_numbers(kind):
    axes = Figure().subplots()
    found = RESULTS[kind](Z, [*LENGTHS])
    assert found.plot(axes) is axes
    found.plot(axes, color="red", label="again")
    first, second = (bars.lines[0] for bars in axes.containers)
    np.testing.assert_array_equal(first.get_ydata(), found.rmse)
    assert second.get_color() == "red"
    assert axes.get_legend().get_texts()[1].get_text() == "again"
    with pytest.raises(lp.InvalidArgumentError, match="axes: got str"):
        found.plot("here")


def test_a_law_and_its_certificate_share_axes_and_differ_in_grey():
    axes = RESULTS["law"](Z, [10, 100, math.inf]).plot(Figure().subplots())
    RESULTS["certificate"](Z, [10, 100]).plot(axes)
    exact, proved = (bars.lines[0] for bars in axes.containers)
    assert exact.get_xdata().tolist() == proved.get_xdata().tolist() == [10, 100]
    assert bool((proved.get_ydata() >= exact.get_ydata()).all())
    assert exact.get_linestyle() != proved.get_linestyle()


def test_without_a_limit_what_exists_is_shown():
    scalar = lp.SoftmaxAttention([[1.0]], [[1.0]])
    found = lp.finite_prompt(scalar, lp.StudentT(1, df=3.0), [1.0], [10, 100])
    assert repr(found).splitlines()[0] == "FinitePromptLaw(exact, 2 lengths, no limit)"
    assert set(found.to_xarray().data_vars) == {"mean", "effective_tokens"}
    assert "no limit" in repr(lp.finite_prompt(scalar, lp.StudentT(1, df=3.0), [1.0], 10))
    with pytest.raises(lp.TiltDomainError):
        found.plot(Figure().subplots())


def test_a_gradient_does_not_hinder_showing():
    found = lp.finite_prompt(LAYER, LAW, torch.tensor(Z, dtype=F, requires_grad=True), LENGTHS)
    assert "rmse" in repr(found)
    assert found.plot(Figure().subplots()).containers
    assert found.to_xarray().rmse.size == 3
    found.rmse.sum().backward()
