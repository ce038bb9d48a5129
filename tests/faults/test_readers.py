"""Run folders from strangers: whatever they hold, the answer is RunError or a page on which every
string is only text.
"""

import html.parser
import os
import random

import numpy as np
import pytest
from commands import ROUNDS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_folders import make_run, verdict
from toy_studies import STUDY, SmallConfig

from largeprompt.report.page import write_report
from largeprompt.runs.files import RunError, from_json, read_sealed, sealed, sha256, to_json
from largeprompt.runs.netcdf import decode, encode
from largeprompt.runs.store import Run, find_runs

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x00\x1b[2J\u202e"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(EVIL),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.just(EVIL), inner, max_size=3)
    ),
    max_leaves=5,
)
NAMES = ["config.json", "verdicts.json", "provenance.json", "figures/captions.json", "answer.json"]


class Page(html.parser.HTMLParser):
    """Scripts and handlers of a page."""

    def __init__(self, text):
        super().__init__()
        self.scripts = self.handlers = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        self.handlers += sum(name.startswith("on") for name, _ in attributes)


def mutated(value, chance, other):
    """The value with one place of it, chosen at random, replaced."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        return value | {key: mutated(value[key], chance, other)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        return [*value[:place], mutated(value[place], chance, other), *value[place + 1 :]]
    return other


def whole(folder):
    """A run with every kind of file."""
    run = make_run(folder, [verdict(headline="It does."), verdict("C4", "fails", control=True)])
    answer = {"answer": "Replace none.", "headings": ["head"], "rows": [["0.1"]]}
    put(run.folder, "answer.json", answer)
    return run


def put(folder, name, content):
    """Write a file as a stranger might, whose checksums are right."""
    encoded = (
        sealed(content)
        if name in ("config.json", "provenance.json") and isinstance(content, dict)
        else to_json(content)
    )
    (folder / name).write_bytes(encoded)
    if name != "provenance.json":
        made = read_sealed(folder / "provenance.json")
        made["files"][name] = sha256(encoded)
        (folder / "provenance.json").write_bytes(sealed(made))


@settings(
    max_examples=60 * ROUNDS**5,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)
@given(st.sampled_from(NAMES), VALUES, st.integers(0, 2**32))
def test_any_json_in_any_file(tmp_path_factory, name, other, seed):
    folder = tmp_path_factory.mktemp("runs")
    run, chance = whole(folder / "a"), random.Random(seed)
    content = (
        read_sealed(run.folder / name)
        if name in ("config.json", "provenance.json")
        else from_json((run.folder / name).read_bytes())
    )
    try:
        put(run.folder, name, mutated(content, chance, other))
    except UnicodeEncodeError:
        return  # a text that no file holds
    told = []
    for found in find_runs(folder, told.append):
        try:
            page = Page(write_report([found], folder / "report.html").read_text(encoding="utf-8"))
        except RunError:
            continue
        assert page.scripts == 1
        assert page.handlers == 0
    assert all(isinstance(error, RunError) for error in told)


def test_markup_in_every_string_is_text(tmp_path):
    def evil(value, key=""):
        if isinstance(value, dict):
            return {name: evil(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [evil(each) for each in value]
        return (
            EVIL
            if isinstance(value, str) and key not in ("outcome", "finished", "id", "claim", *hashes)
            else value
        )

    run = whole(tmp_path / "a")
    hashes = {*run.checksums, "config.json"}
    for name in NAMES:
        content = (
            read_sealed(run.folder / name)
            if name in ("config.json", "provenance.json")
            else from_json((run.folder / name).read_bytes())
        )
        put(run.folder, name, evil(content))
    (found,) = find_runs(tmp_path)
    text = write_report([found], tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert (page.scripts, page.handlers) == (1, 0)
    assert text.count("&lt;script&gt;alert(1)") > 15  # it is there, as text


def test_any_bytes_in_place_of_a_dataset(tmp_path):
    """Cut, flipped, swapped or made up: the checksum refuses all before the HDF5
    library sees them.
    """
    data = STUDY.run(SmallConfig())
    content, random_numbers, path = encode(data), np.random.default_rng(21), tmp_path / "dataset.nc"
    checksum = sha256(content)
    for _ in range(60):
        damaged = bytearray(content)
        kind = random_numbers.integers(3)
        if kind == 0:
            damaged = damaged[: random_numbers.integers(len(content))]
        elif kind == 1:
            damaged[random_numbers.integers(len(content))] ^= 1 << random_numbers.integers(8)
        else:
            damaged = bytearray(os.urandom(100))
        path.write_bytes(damaged)
        with pytest.raises(RunError, match="damaged"):
            decode(path, checksum)
    path.write_bytes(content)
    assert decode(path, checksum).identical(data)


def test_a_run_of_another_version_is_computed_anew(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "small", STUDY, SmallConfig(), quick=False, rerun="")
    for name, cell in STUDY.cells(SmallConfig()).items():
        run.write_cell(name, encode(cell.compute(SmallConfig())), 1.0)
    monkeypatch.setattr("largeprompt.__version__", "99")
    newer = Run.create(tmp_path / "small", STUDY, SmallConfig(), quick=False, rerun="")
    assert newer.missing() == newer.cells
