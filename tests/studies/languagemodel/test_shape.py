"""Shape apart from length: random subsets of the keys, and the line through their errors."""

import numpy as np
import torch
import xarray as xr

from largeprompt.audit import Heads
from largeprompt.studies.languagemodel.shape import (
    law_slope,
    shape_share,
    subset_errors,
    subset_sizes,
)

SIZES = np.array([64.0, 128.0, 256.0, 512.0])


def test_sizes_fit_twice():
    assert subset_sizes(127) == []
    assert subset_sizes(128) == subset_sizes(255) == [32, 64]  # three errors with that of all keys
    assert subset_sizes(256) == [64, 128]


def relative_error(scores, value):
    affine = value.mean(0) + ((scores - scores.mean())[:, None] * value).mean(0)
    output = torch.softmax(scores, 0) @ value
    return (output - affine).norm() / output.norm()


def test_subsets_of_equal_keys_are_the_head_over_so_many_of_them(random_layer):
    """All tokens but the first are alike: whichever are drawn, the error is by the definition."""
    key, value = (each[:, :, :1].repeat(1, 1, 200, 1) for each in random_layer[1:])
    key[:, :, 0], value[:, :, 0] = random_layer[1][:, :, 1], random_layer[2][:, :, 1]
    heads = Heads(random_layer[0], key, value, None, 0.4, causal=True)
    found = subset_errors(heads, torch.tensor([180, 199]))
    for name, n in (("subset_32_error", 32), ("subset_64_error", 64), ("subset_all_error", 200)):
        for head in range(4):
            scores = 0.4 * key[0, head // 2, :n] @ random_layer[0][0, head, 199]
            expected = relative_error(scores, value[0, head // 2, :n])
            torch.testing.assert_close(found[name][0, head, 1], expected)
    assert found["subset_tokens"][0, 0].tolist() == [181, 200]


def test_keys_behind_the_query_are_not_drawn(random_layer):
    query, key, value = random_layer
    wild = value.clone()
    wild[:, :, 161:] = 1e9
    places = torch.tensor([150, 160])
    one, other = (
        subset_errors(Heads(query, key, each, None, 0.4, causal=True), places)
        for each in (value, wild)
    )
    for name, each in one.items():
        torch.testing.assert_close(each, other[name])
    assert subset_errors(Heads(query, key, value, None, 0.4, causal=True), torch.tensor([90])) == {}


def test_both_parts_come_back():
    for slope, shape, noise in ((1.0, 0.3, 5.0), (0.6, 0.1, 2.0), (1.0, 0.0, 3.0), (0.8, 0.5, 0.0)):
        square = shape**2 + noise * SIZES**-slope
        found = shape_share(SIZES, np.sqrt(square), np.array(slope))
        np.testing.assert_allclose(found, shape**2 / square[-1], atol=1e-6)


def test_what_rises_with_length_is_shape_and_too_few_sizes_tell_nothing():
    assert float(shape_share(SIZES, np.array([0.2, 0.25, 0.3, 0.4]), np.array(1.0))) == 1.0
    assert np.isnan(shape_share(SIZES[2:], np.array([0.3, 0.2]), np.array(1.0)))
    assert np.isnan(shape_share(SIZES, np.array([np.nan, np.nan, 0.3, 0.2]), np.array(1.0)))


def test_the_slope_of_the_law_is_one_where_it_is_linear_and_small_where_it_is_frozen():
    columns = {"tokens": [4096.0] * 2, "score_variance": [0.2, 60.0], "tilt": [0.1, 30.0]}
    columns |= {"value_spread": [1.0, 1.0]}
    slope = law_slope(xr.Dataset({name: ("head", each) for name, each in columns.items()}))
    assert abs(float(slope[0]) - 1) < 0.05
    assert float(slope[1]) < 0.2
