"""The report in a real headless Chromium: expand, filter, keyboard, phone, dark, without JavaScript, offline.

Opt-in (`-m browser`): it needs `pip install -e '.[browser]'` and a Chromium on the machine, such as Debian's
`chromium-headless-shell`. Where the environment names a folder in DRAFTPROOF_BROWSER_PICTURES, screenshots go there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from judge_rows import packet_rows
from report_rows import full_rows, seal

from fixtures.report.html.several import write_comparison, write_index

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PICTURES = "DRAFTPROOF_BROWSER_PICTURES"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium; it was asked for with `-m browser`, so one that is missing is a failure."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail("playwright is not installed: pip install -e '.[browser]'", pytrace=False)
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.fail(
            f"no Chromium here (looked for {', '.join(NAMES)}): apt-get install chromium-headless-shell",
            pytrace=False,
        )
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rejected packet with everything, a sound one, a comparison of them and a list."""
    made = tmp_path_factory.mktemp("packets")
    seal(made / "full", full_rows())
    seal(made / "sound", packet_rows())
    write_comparison(made / "full", made / "sound")
    write_index(made)
    return made


class Opened:
    """A page with everything that it complained about or asked the network for."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def cut_tables(self) -> list[str]:
        """Heads of the tables that are wider than their frame."""
        script = """[...document.querySelectorAll('.wide')].filter(w => w.scrollWidth > w.clientWidth)
            .map(w => w.querySelector('tr').innerText)"""
        found: list[str] = self.page.evaluate(script)
        return found

    def keep(self, name: str) -> None:
        """Keep a screenshot where somebody asked for one."""
        if PICTURES in os.environ:
            drawable = self.page.evaluate("document.documentElement.scrollHeight") < 8000
            self.page.screenshot(path=Path(os.environ[PICTURES]) / f"{name}.png", full_page=drawable)


@pytest.fixture
def opened(browser: Browser, folder: Path) -> Iterator[Opened]:
    """The report of the rejected packet on a desk."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    yield Opened(context.new_page(), folder / "full" / "report.html")
    context.close()


def test_a_report_opens_offline_without_a_complaint(opened: Opened, folder: Path) -> None:
    assert opened.page.title() == "rejected: full - draftproof"
    assert opened.complaints == []
    assert opened.requests == [(folder / "full" / "report.html").as_uri()]
    assert opened.overflow() == 0
    opened.keep("report-desk")


def test_a_divergence_expands_and_marks_both_sides(opened: Opened) -> None:
    entry = opened.page.locator("#divergences details")
    assert entry.count() == 1
    assert not entry.locator("pre").first.is_visible()
    entry.locator("summary").click()
    marks = entry.locator("mark:visible").all_inner_texts()
    assert marks[1] == "<script>document.title"
    assert "499" in marks
    assert "9.49 nats" in entry.inner_text()
    opened.keep("report-divergence")


def test_the_filter_narrows_and_says_how_many_are_left(opened: Opened) -> None:
    opened.page.locator("#every > summary").click()
    box = opened.page.get_by_label("show findings with")
    shown = opened.page.locator("#bad-list [data-item]:visible")
    every = shown.count()
    assert every > 3
    box.fill("parity restarts")
    assert shown.count() == 1
    assert opened.page.locator("#bad-list-count").inner_text() == f"1 of {every}"
    box.fill("nothing says this")
    assert shown.count() == 0
    box.fill("")
    assert shown.count() == every
    assert opened.complaints == []


def test_everything_is_reached_and_opened_by_keyboard(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached: list[str] = []
    for _ in range(200):
        page.keyboard.press("Tab")
        where = page.evaluate(
            "document.activeElement.closest('#divergences') ? 'divergence' : document.activeElement.tagName"
        )
        reached.append(where)
        if where == "divergence":
            break
    assert reached[-1] == "divergence"
    assert {"A", "INPUT", "SUMMARY"} <= set(reached)
    page.keyboard.press("Enter")
    assert page.locator("#divergences details[open]").count() == 1
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "who uses the keyboard sees where it is"


def test_the_copy_button_takes_the_command(opened: Opened) -> None:
    button = opened.page.locator("button.copy:visible").first
    button.click()
    opened.page.wait_for_function("document.querySelector('button.copy').textContent != 'copy'")
    assert button.inner_text() in ("copied", "selected")
    assert opened.complaints == []


@pytest.mark.parametrize("name", ["full/report.html", "sound/report.html", "full--sound.html", "index.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_in_light_and_dark(browser: Browser, folder: Path, name: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme)  # type: ignore[arg-type]
    opened = Opened(context.new_page(), folder / name)
    opened.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert opened.overflow() == 0
    assert opened.cut_tables() == [], "on a phone a row is a card"
    ink, paper = opened.page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (brightness(paper) > 200) == (scheme == "light")
    assert abs(brightness(ink) - brightness(paper)) > 150
    assert all(abs(brightness(fill) - brightness(paper)) > 100 for fill in svg_texts(opened.page))
    assert opened.complaints == []
    opened.keep(f"{name.replace('/', '-').removesuffix('.html')}-phone-{scheme}")
    context.close()


@pytest.mark.parametrize("name", ["full/report.html", "sound/report.html", "full--sound.html", "index.html"])
def test_no_table_is_cut_on_a_desk(browser: Browser, folder: Path, name: str) -> None:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened = Opened(context.new_page(), folder / name)
    opened.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert opened.overflow() == 0
    assert opened.cut_tables() == []
    context.close()


def svg_texts(page: Page) -> list[str]:
    """Colours of the texts in all charts."""
    script = "[...document.querySelectorAll('svg text')].map(e => getComputedStyle(e).fill)"
    found: list[str] = page.evaluate(script)
    return found


def brightness(colour: str) -> float:
    """Perceived brightness of `rgb(...)`, 0 to 255."""
    red, green, blue = (float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_tables_and_divergences_work_without_javascript(browser: Browser, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1200, "height": 900})
    opened = Opened(context.new_page(), folder / "full" / "report.html")
    page = opened.page
    assert page.locator("table:visible").count() > 6
    assert page.locator("svg:visible").count() > 5
    assert page.locator(".filter:visible, button:visible").count() == 0, "what does nothing is not shown"
    page.locator("#divergences summary").click()
    assert page.locator("#divergences pre:visible").count() >= 2
    context.close()


def test_a_list_leads_to_the_reports(browser: Browser, folder: Path) -> None:
    context = browser.new_context()
    opened = Opened(context.new_page(), folder / "index.html")
    opened.page.get_by_label("show packets with").fill("accepted")
    links = opened.page.locator("#packets [data-item]:visible a")
    assert links.all_inner_texts() == ["sound"]
    links.first.click()
    assert opened.page.title() == "accepted: sound - draftproof"
    assert opened.complaints == []
    context.close()
