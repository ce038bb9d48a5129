"""Every study: a storable dataset, controls that fail, and rules that change their mind when the data does."""

import numpy as np
import pytest
import xarray as xr
from small_studies import CONFIGS, dataset

from largeprompt.studies.registry import compute_cell, study


@pytest.mark.parametrize("name", CONFIGS)
def test_dataset_is_storable_and_says_the_same_when_read_back(name, tmp_path):
    data = dataset(name)
    assert all(value.dtype.kind in "bifU" for value in data.variables.values())
    data.to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    again = xr.load_dataset(tmp_path / "data.nc", engine="h5netcdf")
    assert study(name).verdicts(again) == study(name).verdicts(data)


@pytest.mark.parametrize("name", CONFIGS)
def test_verdicts_have_numbers_and_controls_fail(name):
    found = study(name).verdicts(dataset(name))
    assert all(any(letter.isdigit() for letter in verdict.measured) for verdict in found)
    controls = [verdict for verdict in found if verdict.control]
    assert controls
    assert all(verdict.outcome == "fails" for verdict in controls)
    assert not any("nan" in verdict.measured for verdict in found)


@pytest.mark.parametrize("name", CONFIGS)
def test_settings(name):
    chosen = study(name)
    assert isinstance(chosen.quick, chosen.config)
    assert chosen.quick != chosen.config() or name == "sharpness"
    assert len(set(chosen.cells(chosen.quick))) == len(chosen.cells(chosen.quick))


@pytest.mark.parametrize("name", ["limit", "convergence", "anisotropy"])
def test_same_seed_same_numbers_in_any_order(name):
    config = CONFIGS[name]
    parts = {cell: compute_cell(name, config, cell) for cell in reversed(study(name).cells(config))}
    parts = {cell: parts[cell] for cell in study(name).cells(config)}
    assert study(name).finish(config, parts).identical(dataset(name))


def change(name, index, value):
    """Doctor: multiply one entry (or all) of a variable."""

    def doctor(data):
        data[name][index] = value(data[name][index])

    return doctor


DOCTORED = [
    ("limit", "singular Γ", "holds", change("identity_error", {"dim": 1, "kind": 1}, lambda x: x + 1e-6), "fails"),
    ("limit", "responsibility", "holds", change("identity_error", {"dim": 1, "kind": 2}, lambda x: x + 1e-6), "fails"),
    ("limit", "one operator", "holds", change("prompt_error", {"prompt": 0}, lambda x: x + 1e-6), "fails"),
    ("limit", "not Gaussian", "fails", change("control_gap_quadrature", {}, lambda x: 0 * x), "holds"),
    ("limit", "not Gaussian", "fails", change("control_gap", {}, lambda x: 1.01 * x), "undecided"),
    ("limit", "own law", "holds", change("affine_mse", {"law": 1}, lambda x: 1.2 * x), "fails"),
    ("limit", "own law", "holds", change("mse", {"law": 1, "length": 2}, lambda x: 100 * x), "fails"),
    (
        "convergence",
        "drawn prompts",
        "holds",
        change("sampled", {"score_variance": 1, "sampled_length": 2}, lambda x: 2 * x),
        "fails",
    ),
    ("convergence", "of the output stay below", "holds", change("certified", {"length": 3}, lambda x: 0.5 * x), "fails"),
    ("convergence", "in U stay below", "holds", change("exact", {"length": 3, "quantity": 1}, lambda x: 1e30 * x), "fails"),
    ("convergence", "of the output fall with", "holds in part", change("slope", {}, lambda x: 0 * x - 1), "holds"),
    ("convergence", "of the output fall with", "holds in part", change("slope", {}, lambda x: 0 * x - 2), "fails"),
    ("convergence", "at L = 1 for the output", "fails", change("exact", {"length": 0}, lambda x: 0 * x), "holds"),
    ("convergence", "frozen", "fails", change("first_order", {}, lambda x: 0 * x), "holds"),
    ("exponent", "g(H) rather", "holds", change("exponent", {}, lambda x: 1 / (1 + x.square)), "fails"),
    ("exponent", "one c2", "fails", change("exponent", {}, lambda x: 0.3 / x.square), "holds"),
    ("exponent", "faster than 1/L", "fails", change("exponent", {"decade_end": 0}, lambda x: x + 0.5), "holds"),
    ("phase_diagram", "agree with those", "holds", change("effective_tokens", {}, lambda x: x**2), "fails"),
    ("phase_diagram", "well inside", "holds", change("effective_tokens", {}, lambda x: 2 * x), "fails"),
    ("sharpness", "never below", "holds", change("ratio", {"case": 0, "multiple": 3}, lambda x: 0 * x + 0.99), "fails"),
    ("sharpness", "sharp, within", "holds in part", change("ratio", {"case": 5}, lambda x: x + 1), "fails"),
    ("sharpness", "leading term alone", "fails", change("sign_leading_ratio", {}, lambda x: x + 1), "holds"),
    ("drift", "parameters of a long", "fails", change("b", {"length": 1}, lambda x: 1.3 * x), "undecided"),
    ("drift", "infinite-prompt flow", "holds", change("b", {"length": 2}, lambda x: 1.01 * x), "fails"),
    ("drift", "risks at the end", "holds", change("risk", {"length": 1}, lambda x: 0 * x + 1), "fails"),
    ("drift", "conserved", "fails", change("conserved", {}, lambda x: 0 * x), "holds"),
    ("anisotropy", "two traces", "holds", change("exact", {"spectrum": 1, "direction": 0}, lambda x: 1.001 * x), "fails"),
    ("anisotropy", "two traces", "holds", change("sampled", {"spectrum": 1}, lambda x: 2 * x), "fails"),
    ("anisotropy", "alone explain", "fails", change("exact", {}, lambda x: 0 * x + 1), "holds"),
    ("anisotropy", "random queries", "holds", change("random_exponent", {}, lambda x: x - 0.2), "fails"),
    ("anisotropy", "length needed", "fails", change("needed_length", {}, lambda x: 0 * x + 100), "holds"),
    ("shortcontext", "At L = 1", "holds", change("exact", {"length": 0}, lambda x: 1.001 * x), "fails"),
    ("shortcontext", "isotropic tokens", "fails", change("limit_from", {}, lambda x: 0 * x + 5), "holds"),
    ("shortcontext", "softmax attention", "fails", change("regression_from", {}, lambda x: 0 * x + 5), "holds"),
    ("shortcontext", "first order", "fails", change("first_order_from", {}, lambda x: 0 * x + 5), "holds"),
    ("shortcontext", "one token", "fails", change("exact", {"length": 0}, lambda x: 0 * x), "holds"),
]


@pytest.mark.parametrize(("name", "asked", "before", "doctor", "after"), DOCTORED)
def test_rule_reacts(name, asked, before, doctor, after):
    def outcome(data):
        return next(verdict.outcome for verdict in study(name).verdicts(data) if asked in verdict.asked)

    data = dataset(name)
    assert outcome(data) == before
    wrong = data.copy(deep=True)
    doctor(wrong)
    assert outcome(wrong) == after


def test_one_pair_of_constants_is_recognised():
    """Curves made of the paper's own form with one pair are fitted by it, and the true ones are not."""
    from largeprompt.studies.convergence.study import one_pair, paper_form

    data = dataset("convergence").copy(deep=True)
    assert one_pair(data, "output").factor > 10
    for quantity, logs in (("output", 1), ("jacobian_u", 2)):
        for q in data.score_variance.values:
            made = np.maximum(paper_form(data.length.values, float(q), 0.7, 1.3, logs), 1e-300)
            data.exact.loc[{"score_variance": q, "quantity": quantity}] = made
    pair = one_pair(data, "jacobian_u")
    assert (pair.c1, pair.c2) == (pytest.approx(0.7), pytest.approx(1.3))
    asked = "describe the derivative in U"
    assert next(v.outcome for v in study("convergence").verdicts(data) if asked in v.asked) == "holds"
