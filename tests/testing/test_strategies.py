"""What the strategies draw is what the library accepts."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp
from largeprompt.testing.strategies import covariances, probabilities, vectors

EVEN = settings(deadline=None, derandomize=True, max_examples=50)


@EVEN
@given(st.data(), st.integers(1, 4), st.integers(1, 3))
def test_draws_have_the_shapes_and_bounds_that_they_name(data, dim, count):
    drawn = data.draw(vectors(dim, size=0.7, shape=(count, 2)))
    assert drawn.shape == (count, 2, dim)
    assert drawn.dtype == torch.float64
    assert float(drawn.abs().max()) <= 0.7
    means, parts = (
        data.draw(vectors(dim, shape=(count,))),
        torch.stack([data.draw(covariances(dim)) for _ in range(count)]),
    )
    assert lp.GaussianMixture(data.draw(probabilities(count)), means, parts).dim == dim
