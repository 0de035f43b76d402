"""Keyboard, contrast, labels and touch targets of the page, checked by axe-core in a browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skypart.errors import SkyPartError
from skypart.serve.assets import Library, install
from tests.serve.browser import Visit, verdict
from tests.serve.test_page import browser, send, url, visit  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow

AXE = Library(
    name="axe-core",
    version="4.14.0",
    integrity="sha512-9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
    files={"axe.min.js": "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"},
    parent=Path.home() / ".cache" / "skypart" / "tests",
)
"""MPL-2.0; used by this test alone, not part of the package."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def axe() -> str:
    try:
        install(AXE)
    except SkyPartError as error:
        pytest.skip(str(error))
    return (AXE.folder / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Any, script: str) -> list[str]:
    """What axe-core finds wrong, one line per element."""
    page.evaluate(script)
    found = page.evaluate("rules => axe.run({ runOnly: rules })", RULES)["violations"]
    return [f"{each['id']}: {node['html'][:160]}: {node['failureSummary']}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing(
    size: str,
    theme: str,
    visit: Callable[..., Visit],  # noqa: F811
    photo: bytes,
    axe: str,
) -> None:
    page = visit(viewport=SIZES[size], color_scheme=theme, reduced_motion="reduce").open()
    assert violations(page, axe) == []
    send(page, photo)
    verdict(page, "fix")
    page.click("#known > summary")
    page.check('input[value="dark"]', force=True)
    page.wait_for_selector('.weather[data-name="dark"]:not([data-state=""]):not([data-state="busy"])')
    verdict(page, "fix")
    assert violations(page, axe) == []


@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_cut_off(size: str, visit: Callable[..., Visit], photo: bytes) -> None:  # noqa: F811
    page = visit(viewport=SIZES[size]).open()
    send(page, photo, "a_rather_long_name_of_a_photo_" * 3 + ".jpg")
    verdict(page, "fix")
    cut = page.evaluate(
        """() => [...document.querySelectorAll("header *, h2, h3, p, label, dt, dd, .weather *, .example *, .view *")]
          .filter((each) => each.offsetParent && getComputedStyle(each).overflowX === "hidden"
            && !each.matches(".visually-hidden, img, .view-image") && each.scrollWidth > each.clientWidth + 1)
          .map((each) => each.outerHTML.slice(0, 120))"""
    )
    assert cut == []
    outside = page.evaluate(
        """() => [...document.querySelectorAll(".view *, .weather *, .example *, .verdict *")]
          .filter((each) => each.offsetParent && !each.matches(".visually-hidden, .view-image *"))
          .filter((each) => each.getBoundingClientRect().right
            > each.closest(".view, .weather, .example, .verdict").getBoundingClientRect().right + 1)
          .map((each) => each.outerHTML.slice(0, 120))"""
    )
    assert outside == []


@pytest.mark.parametrize("size", SIZES)
def test_touch_targets_have_44_pixels(size: str, visit: Callable[..., Visit], photo: bytes) -> None:  # noqa: F811
    page = visit(viewport=SIZES[size]).open()
    send(page, photo)
    verdict(page, "fix")
    page.click("#known > summary")
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, a, summary, label, input:not([type=checkbox])")]
          .filter((each) => each.offsetParent && !each.matches(".visually-hidden"))
          .map((each) => [each.outerHTML.slice(0, 120), each.getBoundingClientRect()])
          .filter(([_, box]) => box.width < 44 || box.height < 44).map(([html]) => html)"""
    )
    assert small == []
