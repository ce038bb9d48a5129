"""Files of a run: the same bytes for the same data, and errors that say what to do."""

import errno
import hashlib

import numpy as np
import pytest
import xarray as xr

from largeprompt.runs.files import RunError, StorageError, decode, digest, encode, read_json, read_plain, storing, to_json

DATA = xr.Dataset({"value": ("size", [1 / 3, np.nan])}, {"size": [1, 2]}, {"title": "Σ"})


def test_datasets_and_json_are_read_back(tmp_path):
    path = tmp_path / "data.nc"
    path.write_bytes(encode(DATA))
    assert encode(DATA) == path.read_bytes()
    assert decode(path, hashlib.sha256(path.read_bytes()).hexdigest()).identical(DATA)
    (tmp_path / "a.json").write_bytes(to_json({"Σ": [1, None]}))
    assert read_json(tmp_path / "a.json") == {"Σ": [1, None]}


def test_digest_separates_its_parts():
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab") == hashlib.sha256(b'["ab"]').hexdigest()


def test_damaged_and_missing_files_are_named(tmp_path):
    path = tmp_path / "data.nc"
    with pytest.raises(RunError, match=r"cannot read .*data\.nc \(No such file"):
        decode(path, None)
    path.write_bytes(encode(DATA)[:-1])
    with pytest.raises(RunError, match="damaged: it is not what was written"):
        decode(path, hashlib.sha256(encode(DATA)).hexdigest())
    path.write_bytes(b"nothing")
    with pytest.raises(RunError, match="not a netCDF file"):
        decode(path, None)
    with pytest.raises(RunError, match=r"trouble: .*data\.nc is not JSON"):
        read_json(path, "trouble")


def test_links_and_folders_are_no_plain_files(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_plain(tmp_path / "file") == b"content"
    for name in ("link", "."):
        with pytest.raises(OSError, match=r"symbolic|plain|Is a directory"):
            read_plain(tmp_path / name)


@pytest.mark.parametrize(
    ("reason", "words"), [(errno.ENOSPC, "Free some space"), (errno.EACCES, "choose a folder that you may write to")]
)
def test_what_the_system_refuses_says_what_to_do(tmp_path, reason, words):
    with pytest.raises(StorageError, match=words), storing(tmp_path):
        raise OSError(reason, "refused")
