"""What is read of a run for its section of the page: verdicts, figures, settings and provenance."""

import base64
import io
import struct
import zlib

import pytest
from matplotlib.figure import Figure
from run_folders import make_run, png, rewrite, verdict

from largeprompt.report.page import write_report
from largeprompt.report.sections import (
    _value,
    distinct,
    duration,
    embedded,
    machine,
    moment,
    picture,
    read_section,
)


def test_settings_and_provenance_are_said_as_a_person_would(tmp_path):
    found = read_section(make_run(tmp_path / "a", [verdict()]), "here")
    settings, made = dict(found.config), dict(found.provenance)
    assert settings == {
        "lengths": "10, 100",
        "scale": "0.1",
        "exact": "yes",
        "nested": '{"a": [1]}',
    }
    assert (made["Commit"], made["Seed"], made["Workers"]) == ("1c15560", "7", "2")
    assert made["Machine"] == "Linux-6.1, x86_64, 2 CPUs"
    assert made["Packages"] == "torch 2.6.0, numpy 2.1.3"
    assert made["Started"] == "2026-11-15 21:02 UTC"
    assert made["Elapsed"] == "3 min 32 s"
    assert made["Cells"] == "2, the slowest in 1 h 1 min"


def test_a_run_that_is_not_finished_has_settings_alone(tmp_path):
    found = read_section(make_run(tmp_path / "a", finished=False), "here")
    assert not found.complete
    assert found.config
    assert (found.judgments, found.plates, found.provenance) == ((), (), ())


@pytest.mark.parametrize(
    ("outcome", "control", "badge", "kind"),
    [
        ("holds", False, "holds", "good"),
        ("holds in part", False, "holds in part", "part"),
        ("fails", False, "fails", "bad"),
        ("undecided", False, "undecided", "open"),
        ("fails", True, "fails, as it must", "control"),
        ("holds", True, "warning: holds, but must fail", "warning"),
    ],
)
def test_badges(tmp_path, outcome, control, badge, kind):
    (found,) = read_section(
        make_run(tmp_path / "a", [verdict(outcome=outcome, control=control)]), "here"
    ).judgments
    assert (found.badge, found.kind) == (badge, kind)


def test_a_figure_that_is_a_link_is_not_embedded(tmp_path):
    run = make_run(tmp_path / "a", [verdict()])
    (tmp_path / "secret.png").write_bytes(png(3, 3))
    picture = run.folder / "figures" / "curve.png"
    picture.unlink()
    picture.symlink_to(tmp_path / "secret.png")
    (plate,) = read_section(run, "here").plates
    assert not plate.source
    assert "curve.png (Too many levels of symbolic links)" in plate.problem
    assert plate.pdf.startswith("data:application/pdf;base64,")


def test_a_figure_has_its_size_and_a_place(tmp_path):
    (plate,) = read_section(make_run(tmp_path / "a"), "here").plates
    assert (plate.width, plate.height, plate.anchor, plate.caption) == (
        40,
        30,
        "here-figure-1",
        "Caption of curve.",
    )
    assert base64.b64decode(plate.source.partition(",")[2]) == png(40, 30)
    assert embedded("text/plain", b"a") == "data:text/plain;base64,YQ=="


def test_large_settings_are_written_as_in_print():
    assert [_value(each) for each in (1e12, 100.0, 10**8, [1000, 1e-9], True)] == [
        "10¹²",
        "100",
        "10⁸",
        "1000, 10⁻⁹",
        "yes",
    ]


def test_pictures_that_color_fills_keep_their_colors():
    def drawn(draw):
        figure = Figure(figsize=(3, 2))
        draw(figure.subplots())
        file = io.BytesIO()
        figure.savefig(file)
        return file.getvalue()

    filled = drawn(lambda axes: axes.imshow([[0.0, 1.0], [2.0, 3.0]], aspect="auto"))
    assert picture(filled) == (300, 200, True)
    curves = drawn(lambda axes: axes.plot([0, 1], [[0, 1, 2], [2, 1, 0]]))
    assert picture(curves) == (300, 200, False)
    assert picture(curves[: len(curves) // 2]) is None


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def with_chunk(kind, data):
    """A picture with one more chunk, after its header."""
    whole = png(40, 30)
    return whole[:33] + chunk(kind, data) + whole[33:]


def with_header(*fields):
    whole = png(40, 30)
    return whole[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", *fields)) + whole[33:]


BOMB = zlib.compress(b"a" * 10**8)
DAMAGED = {
    "bomb": with_header(60_000, 60_000, 8, 0, 0, 0, 0),
    "no width": with_header(0, 30, 8, 0, 0, 0, 0),
    "bits": with_header(40, 30, 7, 0, 0, 0, 0),
    "short header": png(40, 30)[:8] + chunk(b"IHDR", b"\0\0\0(" * 3) + png(40, 30)[33:],
    "tRNS": with_chunk(b"tRNS", b"a"),
    "pHYs": with_chunk(b"pHYs", b"a"),
    "gAMA": with_chunk(b"gAMA", b"a"),
    "cHRM": with_chunk(b"cHRM", b"abc"),
    "sRGB": with_chunk(b"sRGB", b""),
    "acTL": with_chunk(b"acTL", b"a"),
    "fcTL": with_chunk(b"fcTL", b"a"),
    "fdAT": with_chunk(b"fdAT", b"a"),
    "iCCP": with_chunk(b"iCCP", b"a\0\0" + BOMB),
    "zTXt": with_chunk(b"zTXt", b"a\0\0" + BOMB),
    "iTXt": with_chunk(b"iTXt", b"a\0\1\0\0\0" + BOMB),
    "pixels": png(40, 30)[:45] + b"garbage" + png(40, 30)[52:],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_picture_stops_no_page(tmp_path, name):
    """Each chunk made the decoder raise another exception, or take all memory."""
    run = make_run(tmp_path / "a", [verdict()], figures=("curve", "surface"))
    rewrite(run, "figures/curve.png", DAMAGED[name])
    rewrite(run, "figures/surface.C3.png", DAMAGED[name])
    bad, good = read_section(run, "here").plates
    assert good.source
    assert bad.source == "" or name in ("pHYs", "gAMA", "cHRM", "sRGB", "tRNS", "iCCP", "zTXt")
    assert bad.source or bad.problem.startswith("Damaged figure: figures/curve.png")
    assert "Caption of curve" in write_report([run], tmp_path / "a.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (59.9, "59.9 s"),
        (59.96, "1 min 0 s"),
        (3599.6, "1 h 0 min"),
        (7260, "2 h 1 min"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_what_is_not_known_is_left_out():
    assert machine({}) == ""
    assert machine({"machine": {"platform": "x", "processor": "x", "cpus": 1}}) == "x, 1 CPU"
    assert moment("yesterday") == "yesterday"
    assert moment(None) == ""
    assert distinct(["b", "", "a", "b"]) == ["b", "a"]
