"""The report in a real browser, headless Chromium: it draws, it answers to clicks and keys, and it asks for nothing."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from simlab.cli.main import main
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds
from simlab.traces.reader import open_trace, packaged_trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@dataclass
class Opened:
    """A page, what it asked for and what it complained of."""

    page: "Page"
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def browser_path() -> str:
    """Where a Chromium is; skips the test where there is none."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium is installed (on Debian and Ubuntu: apt install chromium)")
    return found


@contextmanager
def browser() -> "Iterator[Browser]":
    """A running browser; it is closed at the end."""
    path = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        try:
            yield running
        finally:
            running.close()


@contextmanager
def opened(
    running: "Browser", path: Path, width: int = 1280, height: int = 900, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Opened]:
    """A file in a window of its own."""
    context = running.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    found = Opened(page)
    page.on(
        "console",
        lambda message: found.complaints.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("request", lambda request: found.requests.append(request.url))
    page.goto(path.as_uri())
    try:
        yield found
    finally:
        context.close()


BIG = 8_000_000
LONG = "presto:counts=text,ngram_weight=0.3,budget=8"
POLICIES = ("ddtree:budget=4/8/16", "presto:budget=8", LONG)


@dataclass(frozen=True)
class Made:
    path: Path
    browser: "Browser"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    path = tmp_path_factory.mktemp("report") / "report.html"
    with browser() as running:
        chosen = [word for policy in POLICIES for word in ("-p", policy)]
        assert main(["report", "--limit", "5", "--texts", "3", *chosen, "--out", str(path)]) == 0
        yield Made(path, running)


def test_it_draws_every_chart_without_a_complaint_and_asks_for_nothing(made: Made) -> None:
    assert made.path.stat().st_size < BIG
    with opened(made.browser, made.path) as one:
        page = one.page
        for number in range(page.locator(".plot").count()):
            page.locator(".plot").nth(number).scroll_into_view_if_needed()
        page.wait_for_function(
            "document.querySelectorAll('.plot.drawn .main-svg').length >= document.querySelectorAll('.plot').length"
        )
        assert page.locator(".plot").count() >= 8
        assert one.complaints == []
        assert one.requests == [made.path.as_uri()]


BAD_LABELS = """() => {
  const found = [];
  for (const plot of document.querySelectorAll(".plot.drawn")) {
    const box = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("svg text")].map((one) => [one, one.getBoundingClientRect()])
      .filter(([one, at]) => at.width && one.textContent.trim());
    texts.forEach(([one, at], place) => {
      const beside = at.left < box.left - 1 || at.right > box.right + 1;
      const cut = beside || at.top < box.top - 1 || at.bottom > box.bottom + 1;
      if (cut) found.push(plot.dataset.figure + " cuts " + one.textContent);
      texts.slice(place + 1).forEach(([other, there]) => {
        const wide = Math.min(at.right, there.right) - Math.max(at.left, there.left);
        const high = Math.min(at.bottom, there.bottom) - Math.max(at.top, there.top);
        const over = wide > 1 && high > 3;
        if (over) found.push(plot.dataset.figure + ": " + one.textContent + " overlaps " + other.textContent);
      });
    });
  }
  return found;
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_label_of_a_chart_is_cut_and_none_overlaps_another(made: Made, width: int) -> None:
    with opened(made.browser, made.path, width) as one:
        page = one.page
        plots = page.locator(".plot")
        for number in range(plots.count()):
            plots.nth(number).scroll_into_view_if_needed()
        page.wait_for_function("document.querySelectorAll('.plot.drawn .main-svg').length >= 8")
        page.wait_for_timeout(500)
        assert page.evaluate(BAD_LABELS) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        bar = page.locator("#chart-stages .bars .point path").first
        bar.scroll_into_view_if_needed()
        bar.hover(force=True)
        page.wait_for_selector("#chart-stages .hovertext")
        assert "\u2026" not in (page.locator("#chart-stages .hoverlayer").text_content() or "\u2026")


@pytest.mark.thorough
def test_the_explorer_says_what_a_replay_says(made: Made) -> None:
    trace = open_trace(packaged_trace())
    with opened(made.browser, made.path) as one:
        page = one.page
        shown = json.loads(page.locator("#data-trees").text_content() or "")
        label = next(one for one in shown["policies"] if one.startswith("ddtree"))
        page.select_option("[data-part=left]", label=label)
        (left,) = parse_policies([label])
        (recorded,) = trace.recorded(trace.draft_name(), [shown["texts"][0]["sequence"]])
        own = list(rounds(left.policy, recorded))
        status = page.locator("#explorer [data-part=status]")
        page.focus("#explorer")
        for number, each in enumerate(own[:6], 1):
            said = status.inner_text()
            assert f"Round {number} of {len(own)} of {left.label}, after token {each.position + 1} of" in said
            assert f"{left.label} accepts {each.num_accepted} of {each.num_drafted};" in said
            lit = page.locator("[data-part=left-drawing] g.on").count()
            assert lit == each.num_accepted + 1
            page.keyboard.press("ArrowRight")


@pytest.mark.thorough
def test_the_explorer_answers_to_clicks_and_keys(made: Made) -> None:
    with opened(made.browser, made.path) as one:
        page = one.page
        status = page.locator("#explorer [data-part=status]")
        first = status.inner_text()
        assert page.locator("[data-part=previous]").is_disabled()
        page.click("[data-part=next]")
        second = status.inner_text()
        assert second != first
        page.click("[data-part=previous]")
        assert status.inner_text() == first
        page.locator(".reading .starts").nth(1).click()
        assert status.inner_text() == second
        page.focus("#explorer")
        page.keyboard.press("ArrowLeft")
        assert status.inner_text() == first
        page.keyboard.press("ArrowDown")
        assert page.input_value("[data-part=text]") == "1"
        page.keyboard.press("ArrowUp")
        page.locator("[data-part=right-drawing] g").nth(1).click()
        assert re.search(r"depth 1, drafter's probability 0\.\d{3}", page.locator("[data-part=detail]").inner_text())
        page.click("[data-part=parting]")
        counts = re.findall(r"accepts (\d+) of", status.inner_text())
        assert not counts or counts[0] != counts[1]
        page.select_option("[data-part=right]", index=0)
        assert "chain" in status.inner_text()
        assert one.complaints == []


@pytest.mark.thorough
def test_light_and_dark_follow_the_system_and_the_button(made: Made) -> None:
    theme = "[document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor]"
    tick = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    with opened(made.browser, made.path, scheme="dark") as one:
        page = one.page
        page.wait_for_selector(".plot.drawn .main-svg")
        dark, dark_text = page.evaluate(theme), page.evaluate(tick)
        page.click("#theme")
        light = page.evaluate(theme)
        assert (dark[0], light[0]) == ("dark", "light")
        assert dark[1] != light[1] == "rgb(255, 255, 255)"
        page.wait_for_function(f"{tick} !== '{dark_text}'")


@pytest.mark.thorough
def test_the_command_is_copied_and_numbers_can_be_read(made: Made) -> None:
    with opened(made.browser, made.path) as one:
        page = one.page
        page.click("#copy")
        page.wait_for_function("document.getElementById('copied').textContent !== ''")
        assert page.locator("#command").inner_text().startswith("simlab report --limit 5")
        page.locator("details.numbers summary").first.click()
        page.wait_for_selector("details.numbers table tr")
        rows = page.locator("details.numbers table").first.locator("tr").count()
        assert rows > 4
        assert one.complaints == []
