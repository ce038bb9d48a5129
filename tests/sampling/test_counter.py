"""Random numbers by place: Philox against its published answers, and the law of what is made of it."""

import pytest
import torch

from largeprompt.sampling import counter
from largeprompt.testing import assert_sample_mean

FALSE_ALARM = 1e-9
PI = 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344


@pytest.mark.parametrize(
    ("seed", "place", "answer"),
    [
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (2**64 - 1, (counter.WORD,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (0x299F31D0A4093822, PI, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_philox_gives_its_authors_answers(seed, place, answer):
    """Known answers of Philox4x32-10, published with the generator."""
    words = counter.philox(seed, *(torch.tensor([word]) for word in place))
    assert tuple(int(word) for word in words) == answer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normals_have_the_moments_of_a_normal(dtype):
    place = torch.arange(100_000)
    zero = torch.zeros_like(place)
    words = counter.philox(5, place, zero, zero, zero)
    x = counter.normals(words, dtype)
    assert x.shape == (100_000, counter.per_counter(dtype))
    assert x.dtype == dtype
    pairs = x[:, 0] * x[:, 1], x[:-1, 0] * x[1:, 0]
    for moment, wanted in ((x.flatten(), 0.0), (x.flatten() ** 2, 1.0), (x.flatten() ** 4, 3.0), *((pair, 0.0) for pair in pairs)):
        assert_sample_mean(moment.double(), torch.tensor(wanted, dtype=torch.float64), false_alarm=FALSE_ALARM)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ends_of_the_words_give_finite_normals(dtype):
    ends = torch.tensor([0, 1, counter.WORD])
    words = torch.meshgrid(ends, ends, ends, ends, indexing="ij")
    uniform = counter.uniforms(words, dtype)
    assert bool(((uniform > 0) & (uniform <= 1)).all())
    assert bool(torch.isfinite(counter.normals(words, dtype)).all())
