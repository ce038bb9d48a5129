"""What comes in at the door: converted without loss, or refused by name."""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt import validation

F = torch.float64


def test_numbers_become_double_precision_and_tensors_keep_theirs():
    assert validation.tensor("x", [1, 2]).dtype == validation.tensor("x", True).dtype == F
    assert validation.tensor("x", np.float32(1)).dtype == torch.float32
    assert validation.tensor("x", [1.0], like=torch.zeros(1)).dtype == torch.float32
    given = torch.zeros(2, requires_grad=True)
    assert validation.tensor("x", given) is given


def test_a_sum_that_overflows_is_no_infinite_entry():
    huge = torch.full((3,), 1.7e308, dtype=F)
    assert validation.tensor("x", huge) is huge
    assert validation.tensor("x", [math.nan], finite=False).isnan().all()


def test_covariances_and_weights_may_be_wrong_by_rounding():
    root = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=F)
    matrix = root @ root.mT  # rank two: eigenvalues of either sign at 1e-16
    assert validation.covariance("c", matrix) is matrix
    thirds = torch.full((3,), 1 / 3, dtype=torch.float32)
    assert validation.weights("w", thirds) is thirds


def test_lengths():
    assert validation.lengths("L", 5) == ([5.0], False)
    assert validation.lengths("L", np.array([1, 10**15])) == ([1.0, 1e15], True)
    assert validation.lengths("L", [2.0, math.inf], allow_infinity=True) == ([2.0, math.inf], True)
    assert validation.length("L", torch.tensor(3)) == 3.0
    assert validation.indices("i", [0, 2], 3).tolist() == [0, 2]


REFUSED = {
    "complex": (lambda: validation.tensor("x", [1j]), "x: got dtype torch.complex128"),
    "text": (lambda: validation.tensor("x", "ab"), "x: got str that does not convert"),
    "another dtype": (lambda: validation.tensor("x", torch.zeros(1), like=torch.zeros(1, dtype=F)), r"Use x\.to\(torch\.float64\)"),
    "infinite": (lambda: validation.tensor("x", [1.0, math.inf]), "x: got 1 NaN or infinite of 2 entries"),
    "shape": (lambda: validation.shaped("x", [1.0], ("n", 2)), r"x: got shape \(1,\); allowed: shape \(\.\.\., n, 2\)"),
    "no batch": (lambda: validation.shaped("x", np.ones((3, 2)), (2,), batch=False), r"allowed: shape \(2,\)"),
    "broadcast": (lambda: validation.broadcast("a and b", torch.Size([2]), torch.Size([3])), "a and b: got batch shapes"),
    "not square": (lambda: validation.square("m", torch.ones(2, 3)), "m: got shape"),
    "asymmetric": (lambda: validation.covariance("c", torch.tensor([[1.0, 0.1], [0.0, 1.0]])), "asymmetric"),
    "indefinite": (lambda: validation.covariance("c", -torch.eye(2)), "smallest eigenvalue -1"),
    "weights": (lambda: validation.weights("w", torch.tensor([0.5, 0.4])), "w: got entries that sum to 0.9"),
    "boolean": (lambda: validation.integer("n", True), "n: got True"),
    "fraction": (lambda: validation.integer("n", 1.5), "n: got 1.5"),
    "too small": (lambda: validation.integer("n", 1, minimum=2), "an integer of at least 2"),
    "too long": (lambda: validation.length("L", 10**15 + 1), r"1 to 10\^15"),
    "infinite length": (lambda: validation.length("L", math.inf), "L: got inf"),
    "no lengths": (lambda: validation.lengths("L", []), "L: got no lengths"),
    "index beyond": (lambda: validation.indices("i", [0, 3], 3), "i: got entries from 0 to 3"),
    "index of a float": (lambda: validation.indices("i", 1.0, 3), "i: got torch.float32"),
    "two numbers": (lambda: validation.number("x", [1.0, 2.0]), r"x: got shape \(2,\)"),
    "below": (lambda: validation.number("x", -1.0, minimum=0), "one nonnegative number"),
    "zero": (lambda: validation.positive("x", 0), "x: got 0.0"),
    "nan": (lambda: validation.positive("x", math.nan), "x: got nan"),
    "infinity": (lambda: validation.positive("x", math.inf), "x: got inf"),
    "seed": (lambda: validation.generator(0, torch.device("cpu")), "generator: got int"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    call, words = REFUSED[name]
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
