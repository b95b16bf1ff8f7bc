"""A real browser for tests of pages: Debian's Chromium, headless, driven by playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

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
    page.on("console", lambda one: found.complaints.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda one: found.complaints.append(str(one)))
    page.on("request", lambda one: found.requests.append(one.url))
    page.goto(path.as_uri())
    try:
        yield found
    finally:
        context.close()
