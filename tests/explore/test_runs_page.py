"""The third tab: pictures of heads, and strings from disk that stay text."""

import shutil
from xml.etree import ElementTree

import pytest

from largeprompt.explore import runs_page
from largeprompt.explore.reading import Audit, available
from largeprompt.explore.text import in_words

EVIL = "<script>document.title='broken in'</script>"  # as in conftest.py


@pytest.fixture(scope="module")
def run(runs_folder):
    return available(runs_folder)[0]["audit-drawn"]


@pytest.fixture(scope="module")
def audit(run):
    return Audit.of(run)


def test_strings_from_disk_are_text(run):
    """Title, questions, measurements and captions: all shown, none as markup."""
    page = runs_page.overview(run)
    assert "<script>" not in page
    text = "".join(ElementTree.fromstring(f"<div>{page}</div>").itertext())
    assert text.count(EVIL) == 4


def test_controls_that_fail_are_good_news(run):
    page = runs_page.overview(run)
    assert '<span class="badge control">fails, as it must</span>' in page
    assert '<span class="badge part">holds in part</span>' in page


def test_what_fails_says_what_it_means_and_controls_come_last(run):
    page = runs_page.overview(run)
    assert "<strong>A method of ours fails &lt;here&gt;.</strong>" in page
    assert page.index("Does it fail?") < page.index("Must it fail?")


def test_figures_are_there_or_said_to_be_lost(run):
    page = runs_page.overview(run)
    assert page.count("data:image/png;base64,") == 1
    assert "Damaged figure: " in page
    assert '<img class="heat"' in page  # curves turn dark with the page, filled pictures do not


def test_the_map_has_a_letter_and_a_color_for_every_head(audit):
    rows = runs_page.head_map(audit)
    assert [row["layer"] for row in rows] == ["0", "1"]
    letters = {f"L{row['layer']}H{head}": row[f"h{head}"] for row in rows for head in range(3)}
    assert letters == {name: runs_page.LETTERS[row["verdict"]] for name, row in audit.rows.items()}
    assert runs_page.cell_style("0", "h1", "M")["backgroundColor"] == runs_page.TINT["moments"]
    assert runs_page.cell_style("0", "layer", "0") == runs_page.cell_style("0", "h1", "?") == {}
    assert "moments (" in runs_page.map_legend(audit)


def test_a_head_shows_its_verdict_reason_scores_and_read_outs(audit):
    page = runs_page.head(audit, "L0H2")
    cards = {card.attrib["id"]: card for card in ElementTree.fromstring(page)}
    assert set(cards) == {"head", "head-scores", "head-readouts"}
    assert "selects" in "".join(cards["head"].itertext())
    cells = {row.attrib["data-row"]: row[1].text for row in cards["head"].find("table/tbody")}
    assert cells["score variance"] == in_words(float(audit.head("L0H2").head_score_variance), 4)
    assert len(list(cards["head-scores"].iter("circle"))) == audit.data.sizes["position"]
    assert len(list(cards["head-readouts"].iter("circle"))) == len(audit.read_outs)


def test_heads_differ(audit):
    assert len({runs_page.head(audit, name) for name in audit.rows}) == len(audit.rows)


def test_damage_is_said_and_the_rest_is_shown(run, tmp_path):
    """A figure that was changed, then the verdicts: each is told, none is a traceback."""
    folder = tmp_path / "audit-drawn"
    shutil.copytree(run.folder, folder)
    (folder / "figures" / "heads.png").write_bytes(b"no picture")
    damaged = available(tmp_path)[0]["audit-drawn"]
    page = runs_page.overview(damaged)
    assert page.count("Damaged figure: ") == 2
    assert "Does it fail?" in page
    (folder / "verdicts.json").write_text("[]")
    assert "Damaged run: " in runs_page.overview(damaged)
