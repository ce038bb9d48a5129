"""Names that every docstring and README example may use without importing them."""

import math

import pytest
import torch

import largeprompt as lp


@pytest.fixture(autouse=True)
def _examples(doctest_namespace):
    doctest_namespace.update(lp=lp, torch=torch, math=math)
