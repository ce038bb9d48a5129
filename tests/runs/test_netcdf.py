"""Datasets: the same bytes for the same data; a file that may do harm is refused unread."""

import os

import h5netcdf
import h5py
import numpy as np
import pytest
import xarray as xr

from largeprompt.runs.files import RunError, sha256
from largeprompt.runs.netcdf import decode, encode, from_bytes

DATA = xr.Dataset(
    {"value": ("size", [1 / 3, np.nan]), "text": ("size", ["Σ⁻¹", ""]), "one": "", "no": ("e", [])},
    {"size": ["identity", "b"]},
    {"title": "Σ", "numbers": [1, 2]},
)


def test_a_dataset_is_read_back_with_its_types():
    content = encode(DATA)
    assert encode(DATA) == content
    read = from_bytes(content)
    assert read.identical(DATA)
    assert [read[name].dtype for name in DATA.variables] == [
        DATA[name].dtype for name in DATA.variables
    ]
    assert encode(read) == content


def virtual(file, folder):
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "secret.h5"), "x", (4,))
    file.create_virtual_dataset("x", layout)


def external(path):
    def made(file, folder):
        place = [(str(folder / path).encode(), 0, 32)]
        file.create_dataset("x", (4,), "f8", external=place)

    return made


def linked(link):
    return lambda file, folder: file.__setitem__("x", link)


def texts(file, folder):
    """20,000 texts that are not stored, and a fill value of 60,000 characters for each."""
    file.create_dataset("x", (20_000,), "S60000", chunks=(1,), fillvalue=b"a" * 60_000)


def many_texts(file, folder):
    """Each element leads to one and the same megabyte."""
    found = file.create_dataset("x", (10_000,), h5py.string_dtype(), fillvalue="a" * 10**6)
    assert found.size


def of_kind(kind):
    return lambda file, folder: file.create_dataset("x", (3,), kind)


def never_written(file, folder):
    """It takes no place on disk, and eight terabytes in memory."""
    file.create_dataset("x", (10**12,), "f8", chunks=(10**6,))


def references(file, folder):
    file.attrs.create("a", np.array([file.ref] * 3, dtype=h5py.ref_dtype))


def many_in_an_attribute(file, folder):
    file.attrs["a"] = ["a" * 1000] * 10


ATTACKS = {
    "virtual": (virtual, "in another file"),
    "external file": (external("secret.txt"), "in another file"),
    "external pipe": (external("pipe"), "in another file"),
    "soft link": (linked(h5py.SoftLink("/y")), "is a link"),
    "external link": (linked(h5py.ExternalLink("secret.h5", "/x")), "is a link"),
    "group": (lambda file, folder: file.create_group("x"), "not a variable"),
    "named type": (linked(np.dtype("f8")), "not a variable"),
    "fill value": (texts, "bytes of memory"),
    "texts": (many_texts, "neither numbers nor characters"),
    "lists": (of_kind(h5py.vlen_dtype(np.int32)), "neither numbers nor characters"),
    "references": (of_kind(h5py.ref_dtype), "neither numbers nor characters"),
    "compound": (of_kind([("a", "f8"), ("b", "S9")]), "neither numbers nor characters"),
    "long characters": (of_kind("S70000"), "neither numbers nor characters"),
    "never written": (never_written, "bytes of memory"),
    "references in an attribute": (references, "attribute a is neither"),
    "texts in an attribute": (many_in_an_attribute, "attribute a is neither"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_may_do_harm_is_refused(tmp_path, name):
    """Without the check: a crash, a wait without end, bytes of another file, or all memory."""
    attack, words = ATTACKS[name]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "secret.txt").write_bytes(b"password" * 4)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.arange(4.0)
    with h5py.File(tmp_path / "data.nc", "w") as file:
        attack(file, tmp_path)
    content = (tmp_path / "data.nc").read_bytes()
    assert len(content) < 10**6 or name == "texts"
    with pytest.raises(RunError, match=words):
        decode(tmp_path / "data.nc", sha256(content))


@pytest.mark.parametrize("name", ["a", "x"])
def test_a_dimension_without_end_is_refused(tmp_path, name):
    """A chunk that is never written takes no place on disk; nor does an index."""
    with h5netcdf.File(tmp_path / "bomb.nc", "w") as file:
        file.dimensions = {"x": 10**12}
        file.create_variable(name, ("x",), "f8", chunks=(10**6,))
    with pytest.raises(RunError, match="bytes of memory"):
        decode(tmp_path / "bomb.nc", sha256((tmp_path / "bomb.nc").read_bytes()))
