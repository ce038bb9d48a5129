"""The exact curves of the study against direct calls, its fits, and its bounding pair."""

import numpy as np
import pytest
import torch
from small_studies import dataset

import largeprompt as lp
from largeprompt.studies.convergence.study import fit_paper_form, one_pair, paper_form, z_scores


def test_curves_are_those_of_the_operators_own_jacobians():
    """Empirical prompts, derivatives by attention.jacobian_u and jacobian_v: within 6.5 standard errors of the exact curves."""
    data = dataset("convergence").sel(score_variance=2.0)
    eye = torch.eye(4, dtype=torch.float64)
    attention, mu = lp.SoftmaxAttention(eye, eye), lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye)
    z = torch.tensor([2.0**0.5, 0, 0, 0], dtype=torch.float64)
    prompts = lp.Empirical(mu.sample(4000 * 30, torch.Generator().manual_seed(5)).reshape(4000, 30, 4))
    for name, derivative in (("jacobian_u", attention.jacobian_u), ("jacobian_v", attention.jacobian_v)):
        squared = (derivative(prompts, z) - derivative(mu, z)).square().sum((-3, -2, -1))
        expected = float(data.exact_at_samples.sel(quantity=name, sampled_length=30))
        assert abs(float(squared.mean()) - expected) < 6.5 * float(squared.std()) / 4000**0.5


def test_paper_form_is_recovered_from_itself():
    length = np.array([10.0, 100.0, 1000.0])
    for logs in (1, 2):
        c1, c2 = fit_paper_form(length, paper_form(length, 2.0, 0.7, 1.3, logs), 2.0, logs)
        assert (c1, c2) == (pytest.approx(0.7), pytest.approx(1.3))
    assert paper_form(1.0, 2.0, 0.7, 1.3) == 0.0


def test_intervals_hold_the_estimate_and_the_exact_slope():
    data = dataset("convergence")
    for name in ("c1", "c2", "slope"):
        low, middle, high = (data[name].sel(interval=each) for each in ("lower", "estimate", "upper"))
        assert bool(((low < middle) & (middle < high)).all())
    at = data.exact_at_samples.sel(sampled_length=slice(10, 300))
    for q in data.score_variance.values:
        slope = np.polyfit(np.log(at.sampled_length), np.log(at.sel(score_variance=q, quantity="output")), 1)[0]
        row = data.slope.sel(score_variance=q, quantity="output")
        half = float(row.sel(interval="upper") - row.sel(interval="lower")) / 2
        assert abs(float(row.sel(interval="estimate")) - slope) < 3.5 * half  # 7 standard errors


def test_bounding_pair_bounds_and_breaks_where_it_says():
    data = dataset("convergence")
    pair = one_pair(data, "output")
    part = data.exact.sel(quantity="output").sel(length=slice(2, None))
    for q in data.score_variance.values:
        assert np.all(paper_form(part.length, q, pair.bound_c1, pair.bound_c2) >= part.sel(score_variance=q) * (1 - 1e-9))
    small = 0.9 * pair.breaks_below
    eye = torch.eye(4, dtype=torch.float64)
    mu = lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye)
    exact = float(lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, [small**0.5, 0.0, 0.0, 0.0], 100).mse)
    assert float(paper_form(100.0, small, pair.bound_c1, pair.bound_c2)) < exact


def test_a_jacobian_that_does_not_vary_counts_only_where_it_is_wrong():
    data = dataset("convergence").copy(deep=True)
    assert np.isfinite(z_scores(data)[0])
    data.exact_at_samples.loc[{"sampled_length": 1, "quantity": "jacobian_u"}] += 0.1
    assert np.isinf(z_scores(data)[0])
