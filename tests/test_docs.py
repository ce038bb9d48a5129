"""The documentation is whole: nothing cites a file or a formula that is not in the repository."""

import importlib
import re
import runpy
import subprocess
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
from typer.testing import CliRunner

import largeprompt as lp
from largeprompt.cli.app import app
from largeprompt.studies.claims import CLAIMS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = DOCS / "mathematics"
GALLERY = sorted((DOCS / "gallery").glob("*.py"))
ANSWERS = (
    "nongaussian",
    "discrete",
    "heavytail",
    "softmax_vs_linear",
    "depth",
    "dependent",
    "trained",
)
FORMULA = re.compile(
    r"\((tilt|first|law|quad|reg|tail|cert|own|risk|sel|dyn|depth|ngram|engine|query|open)\.(\d+)(?:[-–](\d+))?\)"
)


def tracked():
    """Text files of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [
        path
        for path in paths
        if path.suffix in (".py", ".pyi", ".md", ".toml", ".cff", ".bib") and path.is_file()
    ]


def formulas(text):
    """Numbered formulas that a text names, ranges spelled out."""
    for name, first, last in FORMULA.findall(text):
        yield from (f"{name}.{number}" for number in range(int(first), int(last or first) + 1))


def test_every_formula_that_the_code_cites_is_derived():
    derived = {
        formula
        for page in PAGES.glob("*.md")
        for formula in formulas(page.read_text(encoding="utf-8"))
    }
    cited = {
        formula
        for path in (ROOT / "src").rglob("*.py")
        for formula in formulas(path.read_text(encoding="utf-8"))
    }
    assert len(cited) > 40
    assert cited <= derived, sorted(cited - derived)


def test_every_page_that_is_cited_is_there():
    missing = set()
    for path in tracked():
        text = path.read_text(encoding="utf-8")
        for name in re.findall(
            r"(?:docs|tests|src|benchmarks|tools)/[\w/]+\.(?:md|py|bib|json)\b", text
        ):
            if not (ROOT / name).exists():
                missing.add(f"{path.relative_to(ROOT)}: {name}")
    assert not missing, sorted(missing)


def test_links_between_pages_lead_somewhere():
    broken = set()
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        if {"_build", "auto_gallery", "generated"} & set(path.parts):
            continue
        for target in re.findall(
            r"\]\(([^)#\s]+\.(?:md|png|cff|py))(?:#[^)]*)?\)", path.read_text(encoding="utf-8")
        ):
            if "://" not in target and not (path.parent / target).exists():
                broken.add(f"{path.relative_to(ROOT)}: {target}")
    assert not broken, sorted(broken)


def test_no_document_of_our_own_workshop_is_cited():
    """Only what is in the repository: readers have nothing else."""
    for path in tracked():
        if path != Path(__file__):
            assert not re.search(
                r"\b(MATHS|DESIGN|PAPER|STYLE)(\.md\b| section)", path.read_text(encoding="utf-8")
            ), path


def test_every_claim_and_experiment_is_defined_under_its_id():
    """A heading that is the id alone has the same anchor on every host: docs/claims.md#c6."""
    headings = re.findall(
        r"^### (\w+)$", (DOCS / "claims.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(headings) == sorted(claim.id for claim in CLAIMS)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_open_question_is_answered_in_eighty_words_and_a_table(name):
    _, answer, table = (
        (DOCS / "beyond" / f"{name}.md").read_text(encoding="utf-8").split("\n\n")[:3]
    )
    assert len(answer.split()) <= 80
    assert all(line.startswith("|") for line in table.splitlines())


def referenced():
    """Module and name of every object that has a page of its own."""
    for page in (DOCS / "reference").glob("*.md"):
        for module, _, names in re.findall(
            r"currentmodule:: (\S+)\n\n(.*?):toctree: generated\n\n(.*?)```",
            page.read_text(),
            re.DOTALL,
        ):
            yield from ((module, name) for name in names.split())


def test_every_public_object_has_a_page_and_every_page_an_object():
    pages = set(referenced())
    assert {("largeprompt", name) for name in lp.__all__} - pages == {
        ("largeprompt", name) for name in NAMESPACES
    }
    for module, name in pages:
        assert getattr(importlib.import_module(module), name).__doc__, (module, name)


NAMESPACES = ("audit", "depth", "law", "measures", "scalar", "training")


def test_gallery_examples_are_short_and_draw_one_figure_each():
    assert len(GALLERY) >= 15
    for path in GALLERY:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 50, path
        assert text.count("plt.subplots(") == 1, path


@pytest.mark.parametrize("name", ["plot_02_gaussian_tokens_give_a_line", "plot_08_by_degrees"])
def test_a_gallery_example_runs(name):
    """Two quick ones; the build of the documentation runs all of them."""
    matplotlib.use("Agg")
    runpy.run_path(str(DOCS / "gallery" / f"{name}.py"))
    (axes,) = plt.gcf().axes
    assert len(axes.lines) >= 3
    plt.close("all")


CLUSTERS = DOCS / "howto" / "clusters.md"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_scripts_for_clusters_are_well_formed():
    """Every option that they give is known; every line is shell or Python."""
    scripts = blocks(CLUSTERS, "sh")
    for script in scripts:
        checked = subprocess.run(
            ["bash", "-n"], input=script, text=True, capture_output=True, check=False
        )
        assert checked.returncode == 0, checked.stderr
        for line in re.findall(r"largeprompt (\w+)([^;&#\n]*)", script):
            known = CliRunner().invoke(app, [line[0], "--help"], env={"COLUMNS": "300"}).output
            assert all(option in known for option in re.findall(r"--[a-z-]+", line[1])), line
    for code in blocks(CLUSTERS, "python"):
        compile(code, "cluster.py", "exec")


def prose(text):
    """A page without its programs and formulas."""
    return re.sub(
        r"^(```+|~~~+).*?^\1|\$\$.*?\$\$|`[^`]*`|\$[^$]+\$",
        "",
        text,
        flags=re.DOTALL | re.MULTILINE,
    )


def test_front_pages_have_no_powers_as_a_program_writes_them():
    """L⁻⁰·⁹³ or a formula, and not L^-0.93 or e^{u·x}."""
    pages = [
        DOCS / f"{name}.md"
        for name in ("claims", "start/pictures", "law", "certificates", "measures", "training")
    ]
    for page in (*pages, *(DOCS / "understand").glob("*.md"), *(DOCS / "beyond").glob("*.md")):
        found = re.findall(r".{,20}\^[-{].{,20}", prose(page.read_text(encoding="utf-8")))
        assert not found, f"{page.relative_to(ROOT)}: {found}"


def test_every_page_imports_what_its_examples_use():
    """A reader who types in a page from the top gets what it shows."""
    names = {"lp": "largeprompt as lp", "torch": "torch", "math": "math", "np": "numpy as np"}
    for page in (
        path
        for path in DOCS.rglob("*.md")
        if path.parent != PAGES and "generated" not in path.parts
    ):
        used = re.findall(r"^(?:>>>|\.\.\.) (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
        for name, module in names.items():
            first = next(
                (
                    place
                    for place, line in enumerate(used)
                    if re.search(rf"(?<![\w.]){name}\.", line)
                ),
                None,
            )
            before = used if first is None else used[:first]
            imported = any(re.match(rf"(import|from) .*\b{module}\b", line) for line in before)
            assert first is None or imported, f"{page.relative_to(ROOT)}: {name}"
