"""States of constant size against sums over the keys one by one."""

import numpy as np
import pytest
import torch

from largeprompt.audit import Heads
from largeprompt.studies.real_models.state import state_read_out, state_tokens

SHAPES = ((4, 5), (2, 5), (2, 3))  # heads and width of queries, keys and values


def random_heads():
    draw = torch.Generator().manual_seed(0)
    each = (torch.randn(2, n, 50, w, generator=draw, dtype=torch.float64) for n, w in SHAPES)
    return Heads(*each, None, 0.4, causal=True)


def one_by_one(heads, text, head, position):
    """Scores and values that one query sees, by the definition."""
    group, seen = head // (heads.count // heads.groups), slice(0, position + 1)
    scores = heads.scale * heads.key[text, group, seen] @ heads.query[text, head, position]
    return scores, heads.value[text, group, seen]


def by_hand(scores, value, near, clusters):
    """Near keys one by one, the others by their moments, the largest of the scores bounding the
    tilt.
    """
    masses, reads = (
        [np.exp(scores[near]).sum()],
        [np.exp(scores[near]) @ value[near] / np.exp(scores[near]).sum()],
    )
    for cluster in clusters:
        s, v = scores[cluster], value[cluster]
        spread, most = s.std(), np.sqrt(2 * np.log(len(s)))
        covariance = (s - s.mean()) @ v / len(s)
        if spread <= most:
            masses.append(len(s) * np.exp(s.mean() + spread**2 / 2))
            reads.append(v.mean(0) + covariance)
        else:  # as large as the largest of so many Gaussian scores is
            masses.append(np.exp(s.mean() + spread * most))
            reads.append(v.mean(0) + covariance * most / spread)
    return np.average(reads, axis=0, weights=masses)


@pytest.mark.parametrize("strength", [1.0, 12.0])  # linear, and beyond the largest of the scores
def test_moments_by_hand(strength):
    heads = random_heads()
    heads = type(heads)(
        strength * heads.query, heads.key, heads.value, None, heads.scale, causal=True
    )
    found = state_read_out(heads, [0, 7, 50], torch.tensor([3, 30, 49]), moments=True)
    for text, head, place, position in ((0, 1, 1, 30), (1, 3, 2, 49), (1, 0, 0, 3)):
        scores, value = (each.numpy() for each in one_by_one(heads, text, head, position))
        for number, recent in enumerate((0, 7, 50)):
            near = (np.arange(len(scores)) < 1) | (np.arange(len(scores)) > position - recent)
            expected = by_hand(scores, value, near, [] if near.all() else [~near])
            np.testing.assert_allclose(found[number, text, head, place], expected, rtol=1e-9)


def test_without_moments_only_some_keys_are_read():
    heads = random_heads()
    found = state_read_out(heads, [5], moments=False)[0]
    scores, value = (each.numpy() for each in one_by_one(heads, 0, 2, 40))
    np.testing.assert_allclose(
        found[0, 2, 40], by_hand(scores, value, np.r_[0, 36:41], []), rtol=1e-9
    )


def test_size_in_tokens():
    assert state_tokens(10, False, 64) == 11
    # a number, two means, half of one matrix, all of another
    assert state_tokens(0, True, 4) == 1 + (1 + 8 + 10 + 16) / 8
