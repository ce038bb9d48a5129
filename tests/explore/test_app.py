"""The explorer in headless Chromium, by moving its controls. The browser reaches this machine only,
as if there were no network.
"""

import os
import re
import shutil
import subprocess
import sys
import urllib.parse

import pytest

import largeprompt as lp
from largeprompt.explore import code, law_page, numbers, training_page
from largeprompt.explore.reading import Audit, available
from largeprompt.explore.state import LawState, RunsState, TrainingState
from largeprompt.explore.text import in_words

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PLAYWRIGHT = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install '.[browser]'"
)
pytest.importorskip("marimo", reason="marimo is not installed: pip install 'largeprompt[explore]'")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH")
PATIENCE = 60_000  # milliseconds; on a busy machine the first page takes long


@pytest.fixture(scope="module")
def address(runs_folder):
    command = [
        sys.executable,
        "-m",
        "largeprompt",
        "explore",
        str(runs_folder),
        "--port",
        "0",
        "--headless",
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    said = server.stdout.readline()
    yield re.search(r"http://127\.0\.0\.1:\d+/", said).group()
    server.terminate()
    server.wait()
    server.stdout.close()


@pytest.fixture(scope="module")
def browser():
    with PLAYWRIGHT.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Visit:
    """A page of the explorer on a laptop's screen, what it complained of, and what it asked other
    machines for.
    """

    def __init__(self, browser, address, query="", scheme="light"):
        self.page = browser.new_page(viewport={"width": 1366, "height": 768}, color_scheme=scheme)
        self.complaints, self.elsewhere = [], []
        self.page.on(
            "console",
            lambda said: self.complaints.append(said.text) if said.type == "error" else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

        def route(asked):
            here = asked.request.url.startswith((address, "data:", "blob:"))
            self.elsewhere += [] if here else [asked.request.url]
            asked.continue_() if here else asked.abort()

        self.page.route("**/*", route)
        self.page.goto(address + query)
        self.page.wait_for_selector("#link", timeout=PATIENCE)

    def text(self, selector):
        return self.page.locator(selector).inner_text(timeout=PATIENCE)

    def drawing(self, name):
        return self.page.locator(f"#{name} svg.picture").inner_html(timeout=PATIENCE)

    def becomes(self, selector, expected):
        """Wait until an element says this; the message has what it says instead."""
        PLAYWRIGHT.expect(self.page.locator(selector)).to_have_text(expected, timeout=PATIENCE)

    def slider(self, place):
        return self.page.locator("marimo-slider").nth(place).get_by_role("slider")

    @property
    def query(self):
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.page.url).query))


@pytest.fixture(scope="module")
def visit(browser, address):
    return Visit(browser, address)


def error(state):
    here = numbers.problem(state)
    return in_words(
        float(lp.finite_prompt(here.attention, here.mu, here.z, state.length).mse) ** 0.5, 4
    )


def test_sliders_and_choices_move_the_pictures_and_the_numbers(visit):
    """Strength and length by the keyboard, the law by its menu: pictures change, and the values are
    the library's.
    """
    names = ("scores", "tokens", "readout", "errors", "phase")
    visit.becomes("[data-row=exact] td", error(LawState()))
    before = {name: visit.drawing(name) for name in names}
    visit.slider(2).focus()
    visit.page.keyboard.press("ArrowRight")
    visit.becomes("[data-row=exact] td", error(LawState(strength=1.6)))
    assert all(visit.drawing(name) != before[name] for name in names)
    visit.slider(3).focus()
    visit.page.keyboard.press("ArrowLeft")
    visit.becomes("[data-row=exact] td", error(LawState(strength=1.6, length=100)))
    assert visit.text(".side output >> nth=0") == "100"
    assert "a linear map of the query" in visit.text("#readout")
    visit.page.locator("marimo-dropdown select").first.select_option(label="signs ±1")
    state = LawState(law="signs", strength=1.6, length=100)
    visit.becomes("[data-row=exact] td", error(state))
    assert "off the affine read-out" in visit.text("#readout")
    visit.becomes("#answer .answer", law_page.sentence(state))
    assert LawState.of(visit.query) == state
    assert (
        LawState.of(
            dict(urllib.parse.parse_qsl(visit.page.locator("#link").get_attribute("href")[1:]))
        )
        == state
    )


def test_the_code_that_is_shown_runs_and_gives_the_numbers_beside_it(visit):
    visit.page.get_by_role("button", name="Show the code").press("Enter")
    shown = visit.page.locator("pre").first.inner_text(timeout=PATIENCE)
    names = code.executed(re.sub(r"^print.*$", "", shown, flags=re.MULTILINE))
    assert in_words(float(names["law"].mse) ** 0.5, 4) == visit.text("[data-row=exact] td")
    assert in_words(float(names["law"].effective_tokens), 4) == visit.text(
        "[data-row='tokens read'] td"
    )


def test_all_of_it_fits_on_a_laptop(visit):
    bottom = visit.page.locator("#answer").bounding_box()
    assert bottom["y"] + bottom["height"] <= 768
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 1366


def test_a_head_is_chosen_on_the_map_and_strings_from_disk_stay_text(visit, runs_folder):
    audit = Audit.of(available(runs_folder)[0]["audit-drawn"])
    visit.page.get_by_role("radio", name="Runs and audits").press("Space")
    visit.becomes("#head > p:nth-of-type(2)", audit.why("L0H0"))
    before = visit.drawing("head-readouts")
    # layer, then heads 0, 1 and 2
    visit.page.locator("marimo-table td").nth(3).click(timeout=PATIENCE)
    visit.becomes("#head > p:nth-of-type(2)", audit.why("L0H2"))
    assert visit.drawing("head-readouts") != before
    assert visit.text("[data-row='score variance'] td") == in_words(
        float(audit.head("L0H2").head_score_variance), 4
    )
    assert "<script>" in visit.text(".run h2")
    assert visit.page.title() != "broken in"
    assert visit.query == {"tab": "runs", "run": "audit-drawn", "head": "L0H2"}


def test_a_link_opens_training_in_the_dark(browser, address):
    state = TrainingState(attention="linear", dim=1, until=5.0)
    visit = Visit(browser, address, state.link, scheme="dark")
    risk = in_words(float(training_page.flows(state)["tube"].flow.risk[0, -1]), 4)
    visit.becomes("tr[data-row='10'] td >> nth=0", risk)
    dark = visit.page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
    assert max(map(int, re.findall(r"\d+", dark))) < 60
    assert (visit.complaints, visit.elsewhere) == ([], [])


def test_runs_do_not_wait_for_training(browser, address):
    """Training says that it computes and shows its own code; then another tab is clicked."""
    visit = Visit(browser, address)
    visit.page.get_by_role("radio", name="Training").press("Space")
    visit.becomes("aside >> text=Noise variance", "Noise variance")
    visit.page.get_by_role("radio", name="Runs and audits").press("Space")
    visit.page.wait_for_selector("#head", timeout=PATIENCE)
    assert visit.page.locator("#risks").count() == 0
    assert visit.query["tab"] == "runs"
    assert (visit.complaints, visit.elsewhere) == ([], [])


def test_the_last_of_several_tabs_counts(browser, address):
    visit = Visit(browser, address, "?tab=runs&tab=scaling&variance=2.5")
    visit.page.wait_for_selector("#by-variance", timeout=PATIENCE)
    assert visit.query == {"tab": "scaling", "variance": "2.5"}


def test_too_strong_a_query_is_said_beside_the_controls(browser, address):
    visit = Visit(browser, address)
    visit.page.locator("marimo-dropdown select").first.select_option(label="Laplace")
    said = "Laplace tokens have no limit at strength 1.5: shown at 1.4."
    visit.becomes(".side .foot", said)
    visit.becomes("[data-row=exact] td", error(LawState(law="laplace", strength=1.4)))


@pytest.mark.parametrize(("program", "shown"), [("", False), ("print(1)\n", True)])
def test_without_a_run_there_is_no_code_but_a_link(program, shown):
    from largeprompt.explore.app import footer

    foot = footer.run(program=program, state=RunsState())[0].text
    assert ("Show the code" in foot) == shown
    assert 'href="?tab=runs"' in foot
    assert "None" not in foot


def test_nothing_is_complained_of_and_no_other_machine_is_asked(visit):
    """Comes last: about everything that the tests above did."""
    assert (visit.complaints, visit.elsewhere) == ([], [])
