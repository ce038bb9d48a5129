"""The documentation is whole: nothing cites a file or a formula that is not in the repository."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "mathematics"
FORMULA = re.compile(r"\((tilt|first|law|quad|reg|tail|cert|own|risk|sel|dyn|depth|ngram|engine|query|open)\.(\d+)(?:[-–](\d+))?\)")


def tracked():
    """Text files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.suffix in (".py", ".pyi", ".md", ".toml", ".cff", ".bib") and path.is_file()]


def formulas(text):
    """Numbered formulas that a text names, ranges spelt out."""
    for name, first, last in FORMULA.findall(text):
        yield from (f"{name}.{number}" for number in range(int(first), int(last or first) + 1))


def test_every_formula_that_the_code_cites_is_derived():
    derived = {formula for page in PAGES.glob("*.md") for formula in formulas(page.read_text(encoding="utf-8"))}
    cited = {formula for path in (ROOT / "src").rglob("*.py") for formula in formulas(path.read_text(encoding="utf-8"))}
    assert len(cited) > 40
    assert cited <= derived, sorted(cited - derived)


def test_every_page_that_is_cited_is_there():
    missing = set()
    for path in tracked():
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"(?:docs|tests|src|benchmarks|tools)/[\w/]+\.(?:md|py|bib|json)\b", text):
            if not (ROOT / name).exists():
                missing.add(f"{path.relative_to(ROOT)}: {name}")
    assert not missing, sorted(missing)


def test_links_between_pages_lead_somewhere():
    broken = set()
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        if "_build" in path.parts:
            continue
        for target in re.findall(r"\]\(([^)#\s]+\.(?:md|png|cff|py))(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            if "://" not in target and not (path.parent / target).exists():
                broken.add(f"{path.relative_to(ROOT)}: {target}")
    assert not broken, sorted(broken)


def test_no_document_of_our_own_workshop_is_cited():
    """Only what is in the repository: readers have nothing else."""
    for path in tracked():
        if path != Path(__file__):
            assert not re.search(r"\b(MATHS|DESIGN|PAPER|STYLE)(\.md\b| section)", path.read_text(encoding="utf-8")), path
