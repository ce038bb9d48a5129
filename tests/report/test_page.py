"""The report as a file: parsed with the standard library, and loaded by a browser where there is
one.
"""

import base64
import hashlib
import importlib.metadata
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from run_folders import make_run, png, rewrite, verdict

from largeprompt.report import page
from largeprompt.report.page import write_report
from largeprompt.runs.files import RunError, read_sealed, sealed, to_json
from largeprompt.runs.store import Run

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Elements with their attributes and text; an element that is not closed in order
    is an error.
    """

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {[each['tag'] for each in self.open]}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        element = {"tag": tag, "text": "", **dict(attrs)}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **wanted):
        found = [each for each in self.elements if each["tag"] == tag]
        return [
            each
            for each in found
            if all(value in (each.get(key) or "").split() for key, value in wanted.items())
        ]

    def rows(self):
        """Rows of the verdicts by claim: lists of cells."""
        groups, claim, waiting = {}, "", False
        for element in self.elements:
            if element["tag"] == "details":
                waiting = element["class"] == "claim"
            elif element["tag"] == "b" and waiting:
                claim, waiting = element["text"], False
                groups[claim] = []
            elif element["tag"] == "td" and element.get("role") == "cell":
                groups[claim].append(" ".join(element["text"].split()))
        return {
            claim: [cells[k : k + 4] for k in range(0, len(cells), 4)]
            for claim, cells in groups.items()
        }


def parse(runs, target):
    path = write_report(runs, target)
    assert path == target
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture
def several(tmp_path):
    """Two finished runs, one of them quick, and a partial one."""
    return [
        make_run(
            tmp_path / "convergence",
            [verdict(), verdict("C4", "holds in part"), verdict("C3", "fails", control=True)],
            figures=("curve", "surface"),
            claims=["E1"],
        ),
        make_run(
            tmp_path / "paper-quick",
            [verdict("P1", "undecided")],
            study="paper",
            title="Their experiment",
            quick=True,
        ),
        make_run(
            tmp_path / "random_query",
            finished=False,
            study="random_query",
            title="Spread spectra",
            claims=["E3"],
        ),
    ]


def test_the_page_is_whole(several, tmp_path):
    found = parse(several, tmp_path / "report.html")
    ids = [each["id"] for each in found.elements if "id" in each]
    assert len(ids) == len(set(ids)) >= 10
    links = [each["href"] for each in found.all("a")]
    internal = [link[1:] for link in links if link.startswith("#")]
    assert len(internal) >= 15
    assert set(internal) <= set(ids)
    others = [link for link in links if not link.startswith(("#", "data:application/pdf;base64,"))]
    assert others == ["https://arxiv.org/abs/2512.11784"]
    assert "https://" not in "".join(each["text"] for each in found.all("main"))
    named = {
        each for element in found.elements for each in (element.get("aria-labeledby") or "").split()
    }
    assert named <= set(ids)
    (root,) = found.all("html")
    assert root["lang"] == "en"
    assert all(each.get("scope") in ("col", "row") for each in found.all("th"))
    assert len(found.all("h1")) == 1


def test_nothing_is_loaded_from_elsewhere(several, tmp_path):
    found = parse(several, tmp_path / "report.html")
    assert not [
        each
        for each in found.elements
        if each["tag"] in ("iframe", "object", "embed", "video", "audio", "source")
    ]
    assert [each.get("href") for each in found.all("link")] == ["data:,"]
    (script,) = found.all("script")
    assert "src" not in script
    (style,) = found.all("style")
    assert "url(" not in style["text"]
    assert "@import" not in style["text"]


def test_only_our_own_script_may_run(several, tmp_path):
    found = parse(several, tmp_path / "report.html")
    (policy,) = [each["content"] for each in found.all("meta") if "http-equiv" in each]
    (script,) = found.all("script")
    made = base64.b64encode(hashlib.sha256(script["text"].encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert f"script-src 'sha256-{made}';" in policy
    assert not [name for each in found.elements for name in each if name.startswith("on")]


def test_images_are_inside_with_their_captions(several, tmp_path):
    found = parse(several, tmp_path / "report.html")
    images = found.all("img")
    assert [each["alt"] for each in images] == [
        "Caption of curve.",
        "Caption of surface.",
        "Caption of curve.",
    ]
    for image in images:
        kind, _, content = image["src"].partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(content, validate=True) == png(40, 30)
        assert (image["width"], image["height"]) == ("40", "30")
    saved = [each for each in found.all("a") if "download" in each]
    assert [each["download"] for each in saved] == ["curve.pdf", "surface.pdf", "curve.pdf"]
    assert base64.b64decode(saved[0]["href"].partition(",")[2]).startswith(b"%PDF")


def test_summary_has_every_verdict_under_its_claim(several, tmp_path):
    rows = parse(several, tmp_path / "report.html").rows()
    assert list(rows) == ["C3", "C4", "E1", "E3", "P1"]  # those of the runs, and no others
    assert rows["C3"] == [
        ["Does it fall?", "holds", "Slope -1.00.", "convergence"],
        ["Does it fall? control, must fail", "fails, as it must", "Slope -1.00.", "convergence"],
    ]
    assert [row[1] for row in rows["C4"]] == ["holds in part"]
    assert rows["P1"] == [["Does it fall?", "undecided", "Slope -1.00.", "paper quick"]]


def test_claims_without_a_verdict_say_where_they_are_answered(several, tmp_path):
    heads = {
        each["text"][:2]: each["text"]
        for each in parse(several, tmp_path / "report.html").all("summary")
    }
    assert "Answered in How fast, under C3 and C4." in heads["E1"]
    assert "Begun in Spread spectra, not finished, 1 of 3 cells." in heads["E3"]
    assert "not run" not in "".join(heads.values())


def told(found):
    """Id and word, heading, and sentence of every card."""
    items = [
        [line.strip() for line in each["text"].splitlines() if line.strip()]
        for each in found.all("li")
    ]
    return [lines for lines in items if len(lines) == 3]  # the contents have one


def test_a_card_is_one_headline_with_at_most_one_number(tmp_path):
    """The first that tells of the outcome; else the claim's own sentence. Details do not count."""
    make_run(
        tmp_path / "a",
        [
            verdict("C3", "holds", headline="It falls with the powers 1.00 and 2.00."),
            verdict("C3", "holds", headline="From 10 to 1,000 it falls as C1 says."),
            verdict("C3", "fails", headline="It ends at 10 tokens."),
            verdict("C4", "fails", measured="A detail."),
            verdict("C4", "holds", headline="Falls like L^-0.5 in all."),
            verdict("C5", "holds", headline="At 10 and at 20."),
            verdict("C8", "holds", headline="At 10 and at 20."),
            verdict("C8", "holds", headline="From 10 to 1,000 it falls as C1 says."),
            verdict("C6", "holds", headline="It ends at the theorem."),
            verdict("C6", "fails", headline="Not from everywhere.", stronger=True),
            verdict("C7", "undecided", headline="  "),
            verdict("N1", "fails"),
            verdict("Q1", "holds", control=True),
        ],
    )
    described = read_sealed(tmp_path / "a" / "config.json")
    described["claims"][6] |= {"question": "Does it go on?"}
    rewrite(Run.open(tmp_path / "a"), "config.json", sealed(described))
    found = parse([Run.open(tmp_path / "a")], tmp_path / "report.html")
    assert told(found) == [
        ["C3 in part", "Claim C3", "It ends at 10 tokens."],
        ["C4 holds", "Claim C4", "Falls like L−0.5 in all."],
        ["C5 holds", "Claim C5", "Sentence C5."],
        ["C6 holds", "Claim C6", "It ends at the theorem."],
        ["C7 open", "Claim C7", "Sentence C7."],
        ["C8 holds", "Claim C8", "From 10 to 1,000 it falls as C1 says."],
        ["Q1 to come", "Claim Q1", "Sentence Q1."],
        ["N1 no", "Does it go on?", "Sentence N1."],
    ]
    assert "−0.5" in [each["text"] for each in found.all("sup")]


def test_three_sentences_on_top(tmp_path):
    """What holds, what does not, and what is new."""
    verdicts = [
        verdict("C1"),
        verdict("C2", "holds in part"),
        verdict("E3", "fails"),
        *(
            verdict(name, outcome)
            for name, outcome in (("N1", "holds"), ("Q1", "fails"), ("Q2", "undecided"))
        ),
    ]
    make_run(tmp_path / "a", verdicts)
    described = read_sealed(tmp_path / "a" / "config.json")
    for claim in described["claims"]:
        claim["question"] = "So?" if claim["id"][0] in "NQ" else ""
        claim["experiment"] = claim["id"] == "E3"
    rewrite(Run.open(tmp_path / "a"), "config.json", sealed(described))
    found = parse([Run.open(tmp_path / "a")], tmp_path / "report.html")
    (lines,) = found.all("ul", **{"class": "summary-lines"})
    assert lines["text"] == (
        "What holds: 1 of the 2 claims tested hold (C1)."
        "What does not: fails: Claim E3 (E3); only in part: Claim C2 (C2)."
        "What is new: answers beyond the paper: yes: Claim N1 (N1); no: Claim Q1 (Q1)."
    )
    headings = [each["text"] for each in found.all("h2")]
    assert headings[:3] == ["What the paper claims", "Experiments asked for", "Beyond the paper"]


def test_while_it_grows_the_page_says_how_far_it_is(several, tmp_path):
    (front,) = parse(several, tmp_path / "report.html").all("div", **{"class": "front"})
    assert "This page grows: 2 of 3 studies are done." in front["text"]
    (front,) = parse(several[:2], tmp_path / "report.html").all("div", **{"class": "front"})
    assert "This page grows" not in front["text"]


def test_runs_of_one_study_are_named(tmp_path):
    """Where they have titles of their own, as audits of several models, on the card and in the
    table; not beside other studies.
    """
    models = {"gpt2": "Few do.", "all-MiniLM": "Some do."}
    runs = [
        make_run(
            tmp_path / name,
            [verdict("C3", headline=said)],
            study="audit",
            title=f"Which heads: {name}",
        )
        for name, said in models.items()
    ]
    found = parse(runs, tmp_path / "report.html")
    assert told(found) == [["C3 holds", "Claim C3", "gpt2: Few do; all-MiniLM: Some do."]]
    assert [row[3] for row in found.rows()["C3"]] == ["audit: gpt2", "audit: all-MiniLM"]
    other = make_run(
        tmp_path / "other", [verdict("C3", headline="All do.")], title="How fast: slow"
    )
    found = parse([runs[0], other], tmp_path / "report.html")
    assert told(found) == [["C3 holds", "Claim C3", "Few do."]]
    assert [row[3] for row in found.rows()["C3"]] == ["audit", "convergence"]


def test_every_card_links_to_the_definition_of_its_claim(tmp_path):
    found = parse(
        [make_run(tmp_path / "a", [verdict("C3"), verdict("N1")])], tmp_path / "report.html"
    )
    anchors = {each["id"] for each in found.all("details") if each.get("id")}
    links = {
        each["href"].removeprefix("#")
        for each in found.all("a")
        if each["text"].strip() in ("C3", "N1")
    }
    assert links == {"claim-c3", "claim-n1"} <= anchors


def test_the_card_has_the_picture_of_its_claim(tmp_path):
    run = make_run(tmp_path / "a", [verdict("C3"), verdict("C4")])
    (tmp_path / "secret.png").write_bytes(png(9, 9))
    rewrite(run, "figures/curve.C3.png", png(5, 4))
    rewrite(run, "figures/curve.C4.png", png(9, 9))
    (run.folder / "figures" / "curve.C4.png").unlink()
    (run.folder / "figures" / "curve.C4.png").symlink_to(tmp_path / "secret.png")
    images = parse([run], tmp_path / "report.html").all("img")
    assert [base64.b64decode(each["src"].partition(",")[2]) for each in images] == [
        png(5, 4),
        png(40, 30),
    ]


def test_what_failed_is_said_and_each_verdict_once(tmp_path):
    run = make_run(
        tmp_path / "a",
        [
            verdict(
                outcome="fails", measured="Forty times.", meaning="The paper's form, not its claim."
            )
        ],
    )
    text = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count("Forty times.") == 1
    assert Page(text).rows()["C3"][0][2] == "The paper's form, not its claim.Forty times."


def test_ids_of_claims_are_explained_where_they_are_met(several, tmp_path):
    several[0] = make_run(tmp_path / "b", [verdict(), verdict("C4", asked="Outside C3 and X1?")])
    found = parse(several, tmp_path / "report.html")
    explained = {each["text"]: each["title"] for each in found.all("abbr")}
    assert explained["C3"] in ("Claim C3", "Sentence C3.")
    assert "X1" not in explained
    places = [each["href"] for each in found.all("a") if each["text"] == "C3"]
    assert set(places) == {"#claim-c3"}
    assert len(places) >= 2  # in the question, and where the study says what it is about


def test_claims_are_in_the_order_of_their_ids_and_unknown_ones_come_last(tmp_path):
    runs = [make_run(tmp_path / "a", [verdict("X9"), verdict("C10"), verdict("C2")])]
    rewrite(
        runs[0],
        "verdicts.json",
        to_json([verdict("unlisted"), verdict("X9"), verdict("C10"), verdict("C2")]),
    )
    rows = parse(runs, tmp_path / "report.html").rows()
    assert list(rows) == ["C2", "C10", "X9", "unlisted"]
    assert all(len(each) == 1 for each in rows.values())


@pytest.mark.parametrize("outcome", ["holds", "holds in part", "undecided"])
def test_a_control_that_does_not_fail_is_a_warning(tmp_path, outcome):
    found = parse(
        [make_run(tmp_path / "a", [verdict(outcome=outcome, control=True)])],
        tmp_path / "report.html",
    )
    words = [each["text"] for each in found.all("span", **{"class": "warning"})]
    assert words == [
        "1 of 1 control did not fail",
        "1 control that does not fail",
        f"warning: {outcome}, but must fail",
    ]
    assert not found.all("span", **{"class": "control"})


def test_a_control_that_fails_is_not_counted_with_the_claims(tmp_path):
    found = parse(
        [make_run(tmp_path / "a", [verdict(), verdict(outcome="fails", control=True)])],
        tmp_path / "report.html",
    )
    (summary,) = [each for each in found.all("summary") if each["text"].startswith("C3")]
    assert "1 holds" in summary["text"]
    assert "fail" not in summary["text"]
    assert [each["text"] for each in found.all("span", **{"class": "good"})] == [
        "holds",
        "1 holds",
        "holds",
    ]
    words = " ".join(found.all("main")[0]["text"].split())
    assert "The control test, designed to fail, failed as expected." in words


def test_every_outcome_has_its_own_badge(tmp_path):
    outcomes = {"holds": "good", "holds in part": "part", "fails": "bad", "undecided": "open"}
    found = parse(
        [make_run(tmp_path / "a", [verdict(outcome=each) for each in outcomes])],
        tmp_path / "report.html",
    )
    for outcome, kind in outcomes.items():
        counted = outcome.removeprefix("holds ").replace("undecided", "open")
        words = [f"1 {counted}", outcome]
        assert [each["text"] for each in found.all("span", **{"class": kind})] == (
            ["in part", *words] if kind == "part" else words
        )


def test_everything_is_escaped(tmp_path):
    bad = "<script>alert(1)</script>\"'&"
    run = make_run(
        tmp_path / "run <b>",
        [verdict(asked=bad, measured=bad), verdict()],
        **dict.fromkeys(("title", "question", "method", "rerun", "study"), bad),
        config={bad: bad},
    )
    rewrite(run, "figures/captions.json", to_json({"curve": bad}))
    found = parse([run], tmp_path / "report.html")
    assert len(found.all("script")) == 1
    assert not [each for each in found.elements if "onload" in each]
    assert found.all("h2")[-1]["text"] == bad
    assert found.all("img")[0]["alt"] == bad
    assert sum(bad in each["text"] for each in found.all("td")) >= 3


def test_a_partial_run_is_listed_without_verdicts(tmp_path):
    run = make_run(tmp_path / "a", finished=False, stored=2)
    found = parse([run], tmp_path / "report.html")
    (main,) = found.all("main")
    assert main["text"].count("not finished, 2 of 3 cells") >= 2
    assert not found.all("img")
    assert not any(found.rows().values())
    (box,) = found.all("pre")
    assert box["text"] == "largeprompt run convergence"


def test_a_quick_run_is_marked(several, tmp_path):
    found = parse(several, tmp_path / "report.html")
    sections = found.all("section")
    assert [("Quick run:" in each["text"]) for each in sections] == [
        False,
        False,
        False,
        True,
        False,
    ]
    assert "1 of 3 runs used quick settings" in found.all("div", **{"class": "front"})[0]["text"]


@pytest.mark.parametrize("damage", ["gone", "not a picture", "cut"])
def test_a_missing_figure_leaves_its_caption(tmp_path, damage):
    run = make_run(tmp_path / "a", figures=("curve", "surface"))
    image = run.folder / "figures" / "curve.png"
    if damage == "gone":
        image.unlink()
        image.with_suffix(".pdf").unlink()
    elif damage == "not a picture":
        rewrite(run, "figures/curve.png", b"hello")
    else:
        image.write_bytes(png(40, 30)[:-1])
    found = parse([run], tmp_path / "report.html")
    (box,) = found.all("div", **{"class": "missing"})
    assert box["text"].startswith("Damaged figure: ")
    assert "figures/curve.png" in box["text"]
    assert [each["alt"] for each in found.all("img")] == ["Caption of surface."]
    assert any("Caption of curve." in each["text"] for each in found.all("figcaption"))


def test_the_page_ends_with_how_it_was_made(tmp_path):
    found = parse([make_run(tmp_path / "a", [verdict()])], tmp_path / "report.html")
    table = dict(
        zip(
            *(
                [each["text"] for each in found.all(tag) if "role" not in each]
                for tag in ("th", "td")
            ),
            strict=True,
        )
    )
    assert (table["lengths"], table["Seed"]) == ("10, 100", "7")
    facts = " ".join(found.all("dl")[0]["text"].split())
    assert f"by largeprompt {importlib.metadata.version('largeprompt')}" in facts
    assert "1 run, 1 h 3 min of computing, all cells added up" in facts
    assert re.search(r"Written\s*\d{4}-\d\d-\d\d \d\d:\d\d UTC", facts)


def test_runs_of_the_same_name_have_their_own_sections(tmp_path):
    runs = [make_run(tmp_path / where / "a", [verdict()], title=where) for where in ("one", "two")]
    found = parse(runs, tmp_path / "report.html")
    ids = [each["id"] for each in found.elements if "id" in each]
    assert len(ids) == len(set(ids))
    assert {"run-a", "run-a-2"} <= set(ids)


def test_no_runs_make_a_page_too(tmp_path):
    found = parse([], tmp_path / "report.html")
    assert found.rows() == {}


def test_an_unreadable_run_is_an_error_that_names_the_file(tmp_path):
    run = make_run(tmp_path / "a", [verdict()])
    (tmp_path / "a" / "verdicts.json").write_text("{")
    with pytest.raises(RunError, match=r"verdicts\.json"):
        write_report([run], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    run, target = make_run(tmp_path / "a"), tmp_path / "new" / "report.html"
    write_report([run], target)
    target.write_text("old")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_report([run], target)
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
    assert target.read_text() == "old"


def brightness(color):
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def expand(color):
    return color if len(color) == 7 else "#" + "".join(2 * letter for letter in color[1:])


def test_text_stands_out_in_light_dark_and_print():
    text = (Path(page.__file__).parent / "templates" / "report.html.j2").read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+);", block))
        for block in re.findall(r":root \{(.*?)\}", text, re.S)
    ]
    assert len(themes) == 3
    for theme in themes:
        pairs = [
            (ink, ground) for ink in ("ink", "soft", "link") for ground in ("page", "card", "wash")
        ]
        pairs += [
            (kind, f"{kind}-wash") for kind in ("good", "part", "bad", "open", "control", "warning")
        ]
        for ink, ground in pairs:
            low, high = sorted(brightness(expand(theme[name])) for name in (ink, ground))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


def browse(path, profile, *flags):
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
    ]
    command += [
        "--enable-logging=stderr",
        "--v=0",
        "--virtual-time-budget=2000",
        *flags,
        path.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_in_a_browser(several, tmp_path):
    target = write_report(several, tmp_path / "report.html")
    plain = browse(target, tmp_path / "profile", f"--screenshot={tmp_path / 'shot.png'}")
    assert plain.returncode == 0
    assert "CONSOLE" not in plain.stderr
    assert (tmp_path / "shot.png").read_bytes()[:4] == b"\x89PNG"
    probe = """<script>addEventListener("load", () => { console.error("heard");
      document.title = [...document.images].map(i => i.complete && i.naturalWidth).join()
        + " " + innerWidth + " " + document.documentElement.scrollWidth; });</script></body>"""
    text = target.read_text(encoding="utf-8").replace("</body>", probe)
    target.write_text(text, encoding="utf-8")
    stopped = browse(target, tmp_path / "profile", "--dump-dom")
    assert "Content Security Policy" in stopped.stderr  # a script of somebody else does not run
    assert "heard" not in re.sub("<script>.*", "", stopped.stderr)
    assert "<title>largeprompt report" in stopped.stdout
    target.write_text(
        re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text), encoding="utf-8"
    )
    for width in (1280, 500):
        probed = browse(target, tmp_path / "profile", "--dump-dom", f"--window-size={width},800")
        assert probed.returncode == 0
        assert "CONSOLE" in probed.stderr  # so its absence above means something
        images, inner, scrolled = re.search(
            r"<title>(\S+) (\d+) (\d+)</title>", probed.stdout
        ).groups()
        assert images == "40,40,40"
        assert int(scrolled) <= int(inner) == width


@pytest.mark.parametrize("name", ["../../secret", "/etc/hostname"])
def test_a_figure_name_cannot_reach_another_file(tmp_path, name):
    """Private files are never embedded: neither by a name that leaves the folder, nor through a
    link.
    """
    run = make_run(tmp_path / "a", [verdict()])
    (tmp_path / "secret.png").write_bytes(png(3, 3))
    rewrite(run, "figures/captions.json", to_json({name: ""}))
    with pytest.raises(RunError, match="should match pattern"):
        write_report([run], tmp_path / "report.html")


def test_a_folder_of_figures_that_is_a_link_is_refused(tmp_path):
    run = make_run(tmp_path / "a", [verdict()])
    (tmp_path / "a" / "figures").rename(tmp_path / "theirs")
    (tmp_path / "a" / "figures").symlink_to(tmp_path / "theirs")
    with pytest.raises(RunError, match="is a link"):
        write_report([run], tmp_path / "report.html")
