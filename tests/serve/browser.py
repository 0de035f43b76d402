"""Debian's chromium, driven by playwright, that can reach nothing but this machine and notes all it asks for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from skypart.serve.assets import missing_assets

ARGUMENTS = [
    "--no-sandbox",  # tests may run as root, as in containers
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
PATIENCE_MS = 240_000  # for machines with other work; nothing is measured by it
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def open_browser() -> Iterator[Any]:
    """A browser; skips the test where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no chromium; on Debian: apt-get install chromium")
    if missing_assets():
        pytest.skip(missing_assets())
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """One look at the page: the tab, and what it asked for, complained of and failed with."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._unwanted)
        self.page.on("console", self._console)

    def open(self) -> Any:
        """Go to the page and wait until it is ready."""
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready]")
        return self.page

    def foreign(self) -> list[str]:
        """Requests to anything but our server."""
        return [url for url in self.asked if not url.startswith((f"{self.url}/", f"blob:{self.url}/"))]

    def _unwanted(self, dialog: Any) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def close(self) -> None:
        """Close the tab."""
        self.context.close()


def verdict(page: Any, state: str) -> str:
    """Wait for a verdict of one kind; its headline and sentence."""
    page.wait_for_selector(f'#verdict[data-state="{state}"]')
    return str(page.inner_text(".verdict-text"))


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
