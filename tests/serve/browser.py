"""Chromium, driven by playwright. It can reach only this machine, and all its requests are recorded."""

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
TIMEOUT_MS = 240_000  # generous, for busy machines; nothing is measured with it
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def open_browser(assets: bool = True) -> Iterator[Any]:
    """A browser; skips the test if there is none, or if the page's `assets` are missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no chromium; on Debian: apt-get install chromium")
    if assets and missing_assets():
        pytest.skip(missing_assets())
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """One visit to the page: the tab, its requests and its errors."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(TIMEOUT_MS)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("console", self._console)

    def open(self) -> Any:
        """Go to the page and wait until it is ready."""
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready]")
        return self.page

    def foreign(self) -> list[str]:
        """Requests to any other server."""
        return [url for url in self.requests if not url.startswith((f"{self.url}/", f"blob:{self.url}/"))]

    def _dialog(self, dialog: Any) -> None:
        self.errors.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def close(self) -> None:
        """Close the tab."""
        self.context.close()


def verdict(page: Any, state: str) -> str:
    """Wait for a result of one kind; return its headline and text."""
    page.wait_for_selector(f'#verdict[data-state="{state}"]')
    return str(page.inner_text(".verdict-text"))


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
