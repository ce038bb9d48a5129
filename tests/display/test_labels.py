"""Words and units of the variables of a dataset."""

import numpy as np
import xarray as xr

from largeprompt.display.labels import label, named


def attributes(data, names):
    return {
        key: (value.attrs["long_name"], value.attrs["units"])
        for key, value in label(data, names).variables.items()
    }


def test_words_units_and_stars():
    data = xr.Dataset(
        {
            "length": ("length", [1.0]),
            "mixture_8_error": 0.5,
            "law": ("length", ["Gaussian"]),
            "frozen": True,
        }
    )
    names = {
        "length": "prompt length [tokens]",
        "mixture_*_error": "error with * components",
        "law": "law of the tokens",
    }
    assert attributes(data, names) == {
        "length": ("prompt length", "tokens"),
        "mixture_8_error": ("error with 8 components", "1"),
        "law": ("law of the tokens", "label"),
        "frozen": ("frozen", "label"),
    }


def test_a_name_goes_before_a_pattern_and_the_first_pattern_before_the_second():
    names = {"*_error": "error of *", "*_low_error": "never", "mean_error": "own words"}
    data = xr.Dataset({"mean_error": 0.0, "one_low_error": 0.0})
    assert attributes(data, names) == {
        "mean_error": ("own words", "1"),
        "one_low_error": ("error of one low", "1"),
    }


def test_the_table_goes_before_what_is_there_and_what_is_there_before_the_name():
    data = xr.Dataset(
        {"a": ((), 1.0, {"long_name": "old", "meaning": "kept"}), "b": ((), 1.0, named("own", "s"))}
    )
    found = label(data, {"a": "new"})
    assert found.a.attrs == {"long_name": "new", "units": "1", "meaning": "kept"}
    assert found.b.attrs == {"long_name": "own", "units": "s"}


def test_coordinates_without_an_index_and_empty_datasets():
    data = xr.Dataset({"x": ("case", np.zeros(2))}, coords={"kind": ("case", ["a", "b"])})
    assert label(data, {"kind": "kind of case"}).kind.attrs["units"] == "label"
    assert label(xr.Dataset(), {}).identical(xr.Dataset())
