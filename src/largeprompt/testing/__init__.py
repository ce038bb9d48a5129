"""Checks for laws and operators that somebody adds: inherit a contract, name your law, and pytest runs the rest.

>>> from largeprompt.testing import MeasureContract
>>> class TestMyLaw(MeasureContract):
...     measure = lp.Rademacher(3)
"""

from largeprompt.testing.contracts import MeasureContract
from largeprompt.testing.statistics import assert_sample_mean

__all__ = ["MeasureContract", "assert_sample_mean"]
