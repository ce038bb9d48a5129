"""Files of packages in a local folder that stands for the index."""

import io
import tarfile
import zipfile

import pytest

from largeprompt.audit.adapters.transformers import AuditError
from largeprompt.audit.real.index import fetch_member, fetch_members


@pytest.fixture
def index(tmp_path, monkeypatch):
    """pip set up for a folder alone, with a wheel and a source distribution whose build would
    raise.
    """
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with zipfile.ZipFile(tmp_path / "weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("weights/model.bin", b"wheel")
    with tarfile.open(tmp_path / "weights-1.0.tar.gz", "w:gz") as source:
        for name, text in (
            ("setup.py", b"raise RuntimeError"),
            ("data/model.bin", b"source"),
            ("data/other.bin", b"other"),
        ):
            entry = tarfile.TarInfo(f"weights-1.0/{name}")
            entry.size = len(text)
            source.addfile(entry, io.BytesIO(text))
    return tmp_path


@pytest.mark.parametrize("kind", ["wheel", "source"])
def test_a_file_of_either_distribution_and_nothing_is_built(index, kind):
    target = fetch_member("weights", "1.0", kind, "*/model.bin", index / "found")
    assert target.read_bytes() == kind.encode()


def test_the_files_of_a_folder_without_those_below_it(index, tmp_path):
    with zipfile.ZipFile(index / "several-1.0-py3-none-any.whl", "w") as wheel:
        for name in ("one", "two", "below/one"):
            wheel.writestr(f"several/model/{name}", name)
    (folder := tmp_path / "files").mkdir()
    found = fetch_members("several", "1.0", "wheel", "several/model/*", folder)
    assert sorted(file.read_text() for file in found) == ["one", "two"]
    assert sorted(file.name for file in folder.iterdir()) == ["one", "two"]


@pytest.mark.parametrize(
    ("version", "kind", "pattern", "words"),
    [
        ("2.0", "wheel", "*", "no such wheel"),
        ("1.0", "source", "*.bin", "2 files match"),
        ("1.0", "wheel", "*.txt", "0 files match"),
    ],
)
def test_what_is_not_there_is_said(index, version, kind, pattern, words):
    with pytest.raises(AuditError, match=words):
        fetch_member("weights", version, kind, pattern, index / "found")
