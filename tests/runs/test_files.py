"""Files of a run: the same bytes for the same data, and errors that say what to do."""

import errno
import hashlib
import math

import numpy as np
import pytest
import xarray as xr

from largeprompt.runs.files import (
    RunError,
    StorageError,
    digest,
    from_json,
    read_plain,
    read_sealed,
    sealed,
    sha256,
    storing,
    to_json,
)
from largeprompt.runs.netcdf import decode, encode

DATA = xr.Dataset({"value": ("size", [1 / 3, np.nan])}, {"size": [1, 2]}, {"title": "Σ"})


def test_datasets_and_json_are_read_back(tmp_path):
    path = tmp_path / "data.nc"
    path.write_bytes(encode(DATA))
    assert encode(DATA) == path.read_bytes()
    assert decode(path, hashlib.sha256(path.read_bytes()).hexdigest()).identical(DATA)
    (tmp_path / "a.json").write_bytes(sealed({"Σ": [1, None, math.inf]}))
    assert read_sealed(tmp_path / "a.json") == {"Σ": [1, None, math.inf]}
    assert from_json(to_json({"Σ": [1]})) == {"Σ": [1]}


def test_digest_separates_its_parts():
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab") == hashlib.sha256(b'["ab"]').hexdigest()


def test_damaged_and_missing_files_are_named(tmp_path):
    path = tmp_path / "data.nc"
    with pytest.raises(RunError, match=r"cannot read .*data\.nc \(No such file"):
        decode(path, "")
    path.write_bytes(encode(DATA)[:-1])
    with pytest.raises(RunError, match="damaged: it is not what was written"):
        decode(path, hashlib.sha256(encode(DATA)).hexdigest())
    path.write_bytes(b"nothing")
    with pytest.raises(RunError, match="not a netCDF file"):
        decode(path, sha256(b"nothing"))
    with pytest.raises(RunError, match=r"trouble: .*data\.nc is not JSON"):
        read_sealed(path, "trouble")


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 10**5,
        b'{"a": ' * 500 + b"1" + b"}" * 500,
        b'{"a": "\\ud800", "sha256": ""}',
        b'{"a": 1, "sha256": ["x"]}',
        b"{}",
        b"[]",
        b"\xff",
        b'{"a": ' + b"9" * 5000 + b"}",
        sealed({"a": 1}).replace(b"1,", b"1.0,"),
        sealed({"a": 1e5}).replace(b"100000.0", b"1e5"),
        sealed({"a": 1}) + b" ",
        sealed({"a": 1}).replace(b'{', b'{"a": 1,', 1),
    ],
)  # fmt: skip
def test_what_is_not_byte_for_byte_what_was_sealed_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(RunError, match="trouble"):
        read_sealed(tmp_path / "a.json", "trouble")


def test_files_that_are_too_large_for_their_kind(tmp_path):
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(2**26 + 1)
    with pytest.raises(OSError, match="more than 67,108,864"):
        read_plain(tmp_path / "a.json")


def test_links_and_folders_are_no_plain_files(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_plain(tmp_path / "file") == b"content"
    for name in ("link", "."):
        with pytest.raises(OSError, match=r"symbolic|plain|Is a directory"):
            read_plain(tmp_path / name)


@pytest.mark.parametrize(
    ("reason", "words"),
    [(errno.ENOSPC, "Free some space"), (errno.EACCES, "choose a folder that you may write to")],
)
def test_what_the_system_refuses_says_what_to_do(tmp_path, reason, words):
    with pytest.raises(StorageError, match=words), storing(tmp_path):
        raise OSError(reason, "refused")
