"""Names that every docstring and README example may use without importing them; which tests share a
worker.
"""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import largeprompt as lp

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


def pytest_addoption(parser):
    """``--device``, for which tests/placing.py is."""
    parser.addoption(
        "--device", default="cpu", help="where the tests put their tensors: cpu, cuda, ..."
    )


def pytest_configure(config):
    """Put what tests make on the device."""
    if config.getoption("--device") != "cpu":
        from tests.placing import place

        place(torch.empty(0, device=config.getoption("--device")).device)


def pytest_collection_modifyitems(config, items):
    """Leave out what is on the CPU by design."""
    if config.getoption("--device") != "cpu":
        from tests.placing import there

        items[:] = there(items)


@pytest.fixture(autouse=True)
def _examples(doctest_namespace):
    doctest_namespace.update(lp=lp, torch=torch, math=math)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file stays with one worker, and so do all files of a study, which share its small run."""
    from xdist.scheduler import LoadFileScheduling

    class LoadFolderScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            path = Path(nodeid.split("::", 1)[0])
            return str(path.parent if path.parent.parent.name == "studies" else path)

    return LoadFolderScheduling(config, log)
