"""Names that every docstring and README example may use without importing them."""

import math

import pytest
import torch
from hypothesis import settings

import largeprompt as lp

settings.register_profile("fixed", derandomize=True)  # the same examples in every run
settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _examples(doctest_namespace):
    doctest_namespace.update(lp=lp, torch=torch, math=math)
