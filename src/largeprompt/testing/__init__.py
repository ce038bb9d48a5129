"""Checks for laws and tasks that somebody adds: inherit a contract, and pytest runs it.

>>> from largeprompt.testing import MeasureContract
>>> class TestMyLaw(MeasureContract):
...     measure = lp.Rademacher(3)
"""

from largeprompt.testing.contracts import MeasureContract
from largeprompt.testing.statistics import assert_sample_mean
from largeprompt.testing.tasks import TaskContract

__all__ = ["MeasureContract", "TaskContract", "assert_sample_mean"]
