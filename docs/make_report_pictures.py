"""The two pictures of a report in README.md, by README's own command and a Chromium that is installed.

python docs/make_report_pictures.py
"""

import re
import shlex
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import FloatRect, Page, sync_playwright

from simlab.cli.main import main

REPOSITORY = Path(__file__).parents[1]
FIGURES = REPOSITORY / "docs" / "figures"
WIDTH, HEIGHT, MARGIN = 1180, 860, 20
DIFFERENCES = 2
"""So many clicks on "next difference" before the trees are drawn."""


def make_report(path: Path) -> None:
    """The report of README's command."""
    (command,) = re.findall(r"^simlab report$", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    if main([*shlex.split(command)[1:], "--out", str(path)]):
        raise SystemExit(2)


def take_pictures(page: Page) -> None:
    """The first screen, and the trees of two policies at the same place."""
    page.wait_for_selector("#chart-speed .plot.drawn .main-svg")
    page.screenshot(path=FIGURES / "report.png")
    for _ in range(DIFFERENCES):
        page.click("[data-part=parting]")
    top, bottom = page.evaluate(
        "[document.querySelector('#explorer [data-part=status]').getBoundingClientRect().top + scrollY,"
        " document.querySelector('#explorer .panes').getBoundingClientRect().bottom + scrollY]"
    )
    clip = FloatRect(x=MARGIN, y=top - 8, width=WIDTH - 2 * MARGIN, height=bottom - top + 24)
    page.screenshot(path=FIGURES / "report_trees.png", full_page=True, clip=clip)


def make_pictures() -> None:
    """Make the report, open it, and take the pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        make_report(Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto((Path(folder) / "report.html").as_uri())
        take_pictures(page)
        browser.close()


if __name__ == "__main__":
    make_pictures()
