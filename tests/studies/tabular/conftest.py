"""The study in a small setting, with a small model of random weights."""

import json

import pytest
import torch
from safetensors.torch import save_file

from largeprompt.studies.tabular.model import TableTransformer
from largeprompt.studies.tabular.parts import TabularConfig
from largeprompt.studies.tabular.study import STUDY

SHAPE = {"features": 6, "width": 16, "heads": 2, "hidden": 32, "layers": 2, "classes": 10}


def tiny():
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return TableTransformer(**SHAPE).eval().requires_grad_(False)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("weights")
    save_file(tiny().state_dict(), place / "model.safetensors")
    (place / "config.json").write_text(json.dumps(SHAPE))
    return place


@pytest.fixture(scope="session")
def config(folder):
    kinds = ("two classes", "regression")
    options = {
        "lengths": (32, 64, 128),
        "tables": 2,
        "queries": 8,
        "audited": 4,
        "dim": 3,
        "replaced_length": 32,
        "steps": 2,
    }
    return TabularConfig(weights=str(folder), kinds=kinds, **options)


@pytest.fixture(scope="session")
def data(config):
    """Computed once; copy before changing it."""
    return STUDY.run(config)
