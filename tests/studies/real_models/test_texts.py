"""Texts by name and from files."""

import pytest

from largeprompt.errors import InvalidArgumentError
from largeprompt.studies.real_models import texts
from largeprompt.studies.real_models.texts import tokens


@pytest.fixture
def novel(monkeypatch, tmp_path):
    """A novel that needs no network: a thousand letters in order."""
    file = tmp_path / "novel.txt"
    file.write_text("".join(chr(ord("a") + i // 50) for i in range(1000)))
    monkeypatch.setattr(texts, "fetched", lambda name, progress: file)


def test_stretches_are_far_apart(novel, folder):
    found = [tokens(f"novel {number}", folder, 50) for number in (1, 2, 3, 4)]
    # an eighth, three, five and seven eighths of 1000 letters, 50 of each
    assert [each[0] for each in found] == [2, 7, 12, 17]
    assert all(len(each) == 50 for each in found)


@pytest.mark.parametrize("name", ["manual", "code"])
def test_python_itself_brings_texts(folder, name):
    assert len(set(tokens(name, folder, 500))) > 10


def test_a_file_is_read_from_its_start(folder, files):
    assert tokens(files[0], folder, 20) == tokens(files[0], folder, 700)[:20]


def test_too_long_and_unknown_are_refused(novel, folder, files):
    with pytest.raises(InvalidArgumentError, match="at most the 700 tokens"):
        tokens(files[0], folder, 701)
    with pytest.raises(InvalidArgumentError, match="at most the 125 tokens"):
        tokens("novel 4", folder, 126)
    with pytest.raises(InvalidArgumentError, match="novel 1"):
        tokens("poem", folder, 10)
