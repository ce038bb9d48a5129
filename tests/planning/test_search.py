"""The search behind ``prompt_length``: nothing above its answer is missed."""

import math

import pytest
import torch

import largeprompt as lp
from largeprompt import validation
from largeprompt.planning.search import smallest_length

F = torch.float64
LAYER = lp.SoftmaxAttention([[1.0]], [[1.0]])
NORMAL = lp.Gaussian([0.0], [[1.0]])
MIXTURE = lp.GaussianMixture([0.3, 0.7], [[-1.0], [1.0]], [[[0.5]], [[0.3]]])


def hump():
    """The limit reads a rare token: 39 to 58 tokens err by up to 0.6325, more than one token (0.49)
    and than 32 or 64 do.
    """
    p = 0.0020482679
    return lp.GaussianMixture(
        [1 - p, p], [[0.0], [3.0183153]], torch.full((2, 1, 1), 0.0991766**2, dtype=F)
    ), [1.4744082]


def test_a_hump_between_powers_of_two_is_not_missed():
    assert lp.prompt_length(LAYER, *hump(), 0.6298565) == 59


@pytest.mark.parametrize(
    "tolerance", [0.48, 0.55, 0.6, 0.62, 0.63, 0.632, 0.6325, 0.63251, 0.632517, 0.6326, 0.7]
)
def test_the_answer_is_the_last_length_outside_and_one(tolerance):
    mu, z = hump()
    errors = lp.finite_prompt(LAYER, mu, z, list(range(1, 3000))).mse.sqrt()
    outside = torch.nonzero(errors > tolerance).flatten()
    assert lp.prompt_length(LAYER, mu, z, tolerance) == (
        int(outside[-1]) + 2 if len(outside) else 1
    )


@pytest.mark.parametrize("seed", range(8))
def test_random_mixtures_against_every_length(seed):
    """The guarantee of the search, at tolerances next to the error of a random length; 1e-5 is its
    stated slack.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = torch.softmax(3 * torch.randn(3, generator=generator, dtype=F), 0)
    means = 2 * torch.randn(3, 1, generator=generator, dtype=F)
    spreads = 0.3 * torch.rand(3, 1, 1, generator=generator, dtype=F)
    mu, z = (
        lp.GaussianMixture(weights / weights.sum(), means, spreads),
        [float(torch.randn(1, generator=generator))],
    )
    errors = lp.finite_prompt(LAYER, mu, z, list(range(1, 1500))).mse.sqrt()
    for index in (3, 10, 40, 160, 640):
        tolerance = float(errors[index]) * (1 + 1e-4)
        answer = int(lp.prompt_length(LAYER, mu, z, tolerance))
        assert bool((errors[answer - 1 :] <= tolerance * (1 + 1e-5)).all())
        assert answer == 1 or answer > 1499 or float(errors[answer - 2]) > tolerance


def test_error_over_pairs_falls_and_is_log_convex():
    """What the search rests on: E‖T_L - A‖²/(L(L-1)) is completely monotone, for any law
    and any A.
    """
    for mu, z in ((NORMAL, [2.0]), (MIXTURE, [0.8]), hump()):
        law = lp.finite_prompt(LAYER, mu, z, list(range(2, 200)))
        for gap in (0.0, 0.7):
            error = law.mse + 2 * law.bias[..., 0] * gap + gap**2
            lengths = torch.arange(2.0, 200.0, dtype=F)
            logs = torch.log(error / (lengths * (lengths - 1)))
            assert bool((logs.diff() < 0).all())
            assert bool((logs.diff(n=2) > -1e-9).all())


def test_a_search_that_meets_nan_raises():
    for lengths in ({1}, {2**20}, {validation.LONGEST}):
        with pytest.raises(lp.InvalidArgumentError, match="NaN"):
            smallest_length(
                lambda asked, bad=lengths: [
                    math.nan if one in bad else 0.01 / one for one in asked
                ],
                0.1,
            )


@pytest.mark.parametrize("power", [0.1, 0.5, 1.7])
@pytest.mark.parametrize("length", [2, 3, 1000, 123_456_789, 10**15])
def test_a_power_law_takes_few_errors(power, length):
    """Errors L^-power: the answer is known, also just below it, and few lengths are looked at."""
    looked_at = []

    def errors(lengths):
        looked_at.extend(lengths)
        return [one**-power for one in lengths]

    tolerance = (length - 0.5) ** -power
    assert smallest_length(errors, tolerance)[0] == pytest.approx(
        length, rel=1e-14
    )  # the errors of 10^15 and its neighbor are equal
    assert len(looked_at) == len(set(looked_at)) < 130


def test_nothing_beyond_the_longest_is_looked_at():
    answer, error, reason = smallest_length(
        lambda lengths: [1 / one for one in lengths], 0.01, longest=128
    )
    assert (answer, error) == (100, 0.01)
    assert "at L = 99" in reason
    assert smallest_length(lambda lengths: [1 / one for one in lengths], 2.0, longest=1)[0] == 1


def test_the_reason_never_shows_an_error_outside_as_the_tolerance():
    """Errors c/√L: the last length outside may be so by less than six digits show."""
    for tolerance, words in ((0.05, "just above 0.05 at L = 35,362"), (0.0499, "at L = ")):
        scale = 0.05 * math.sqrt(35362.0001)
        length, _, reason = smallest_length(
            lambda lengths, scale=scale: [scale / math.sqrt(one) for one in lengths], tolerance
        )
        assert words in reason
        assert f"{int(length):,}" in reason
