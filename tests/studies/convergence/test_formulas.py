"""C3, C4: the paper's form is recovered from itself, and scores of samples that do not vary."""

import numpy as np
import pytest

from largeprompt.studies.convergence.formulas import fit_paper_form, paper_form, z_scores


def test_paper_form_is_recovered_from_itself():
    length = np.array([10.0, 100.0, 1000.0])
    for logs in (1, 2):
        c1, c2 = fit_paper_form(length, paper_form(length, 2.0, 0.7, 1.3, logs), 2.0, logs)
        assert (c1, c2) == (pytest.approx(0.7), pytest.approx(1.3))
    assert paper_form(1.0, 2.0, 0.7, 1.3) == 0.0


def test_a_jacobian_that_does_not_vary_counts_only_where_it_is_wrong(data):
    data = data.copy(deep=True)
    assert np.isfinite(z_scores(data)[0])
    data.exact_at_samples.loc[{"sampled_length": 1, "quantity": "jacobian_u"}] += 0.1
    assert np.isinf(z_scores(data)[0])
