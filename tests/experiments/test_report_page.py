"""The report in a real browser, opened from a file, and the weather summary over data sets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from skypart.drawing.files import save_figure
from skypart.experiments.report import write_report
from skypart.experiments.sheet import Cell, Sheet, write_sheets
from skypart.experiments.tables import weather_summary
from skypart.images.weather import CONDITIONS, LABELS
from skypart.model import SkyPart
from skypart.model.storage import save_model
from tests.model.builders import TINY_HEAD, TINY_VIT, scrambled_vit
from tests.serve.browser import Visit, open_browser, overflow

SEED = np.random.default_rng(0)
METHODS = ("SkyPart", "CLS readout, the same weights", "SALAD", "BoQ")


def weather_sheet(data: str, shift: float, methods: tuple[str, ...] = METHODS) -> Sheet:
    """A weather table in which method number n has n + shift percent everywhere, and 2 points more without weather."""
    rows = []
    for number, name in enumerate(methods):
        values = [number + shift + (2 if c == "normal" else 0) for c in CONDITIONS]
        rows.append(
            [Cell(name), *(Cell(f"{v:.2f} ± 0.10") for v in values), Cell(f"{number + shift:.2f} ± 0.10"), Cell("2.00")]
        )
    headings = ["method", *(LABELS[c] for c in CONDITIONS), "mean", "drop from clean"]
    return Sheet("weather-paper-D2S", f"Ten weathers. Data: {data}", headings, rows, data=data)


def make_results(folder: Path, data: str, shift: float) -> Path:
    """The files of a finished comparison, without training."""
    headline = Sheet(
        "headline",
        f"Heads on the same ground. Data: {data} (sues200); seeds 42, 123, 2024; AP official",
        ["method", "params (M)", "GMACs", "D→S R@1", "D→S AP", "Δ D→S R@1", "S→D R@1", "S→D AP", "Δ S→D R@1"],
        [
            [Cell("SkyPart"), *(Cell(t) for t in ("25.14", "5.90", "9.50 ± 0.41", "88.1", "", "91.0", "80.2", ""))],
            [Cell(METHODS[1]), *(Cell(t) for t in ("25.14", "5.90", "80.25 ± 1.2", "70", "", "90.0", "79.0", ""))],
            [Cell("SALAD"), Cell("23.0"), Cell(""), Cell("84.0"), Cell("80"), Cell("-12.50", "catastrophic"),
             Cell("88"), Cell("70"), Cell("-3.00", "large")],
            [Cell("Sample4Geo (quoted)", "quoted"), *[Cell("", "quoted")] * 2, Cell("92.60", "quoted"),
             *[Cell("", "quoted")] * 5],
        ],
        {1: "B. Branches", 2: "Peers"},
    )  # fmt: skip
    write_sheets(folder / "tables", [headline, weather_sheet(data, shift)])
    (folder / "plan.json").write_text(json.dumps({"title": f"Heads on {data}", "about": "Made for a test. " * 8}))
    for name in ("radar-paper-D2S", "parts-skypart"):
        figure = Figure(figsize=(16, 3) if name.startswith("parts") else (8, 7))
        figure.add_subplot().plot(SEED.uniform(size=20))
        save_figure(figure, folder / "figures" / f"{name}.png")
    for seed in (42, 123):
        model = SkyPart(scrambled_vit(TINY_VIT), TINY_HEAD)
        model.recipe = {"run": {"seed": seed, "out": "x"}, "head": {"altitude_bins": [150.0] * 40}}
        model.provenance = {"code": "0.9 (" + "f" * 60 + ")", "date": "2026-11-18", "machine": "a" * 70}
        save_model(model, folder / "runs" / f"skypart-seed{seed}" / "model.safetensors")
    return folder


def test_the_weather_summary_puts_data_sets_side_by_side() -> None:
    tables = [
        weather_sheet("sues", 10).to_data(),
        weather_sheet("uni", 20).to_data(),
        weather_sheet("dense", 30, METHODS[:3]).to_data(),
    ]
    (sheet,) = weather_summary(tables)
    assert sheet.name == "summary-paper-D2S" and "3 data sets" in sheet.caption
    assert sheet.headings == [
        "method", "sues, normal", "sues, mean", "sues, drop", "uni, normal", "uni, mean", "uni, drop",
        "dense, normal", "dense, mean", "dense, drop", "mean of means",
    ]  # fmt: skip
    texts = [[cell.text for cell in row] for row in sheet.rows]
    assert texts[1][1:4] == ["13.00 ± 0.10", "11.00 ± 0.10", "2.00"] and texts[1][-1] == f"{(11 + 21 + 31) / 3:.2f}"
    assert texts[3][0] == "BoQ" and texts[3][7:] == ["", "", "", ""], "no number on one data set, no mean"
    assert weather_summary(tables[:1]) == []
    assert [s.headings[1] for s in weather_summary([tables[0], tables[0]])] == ["sues 1, normal"]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    folders = [make_results(root / name, name, shift) for name, shift in (("sues", 10), ("uni", 20), ("dense", 30))]
    write_report(folders, root / "report.html")
    assert (root / "report-tables" / "summary-paper-D2S.tex").is_file()
    return root / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser(assets=False) as opened:
        yield opened


@pytest.fixture(params=["light", "dark"])
def visit(browser: Any, page_file: Path, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """The page on a phone; at the end, checks that nothing but the file was requested and nothing went wrong."""
    visit = Visit(browser, page_file.as_uri(), viewport={"width": 390, "height": 844}, color_scheme=request.param)
    visit.page.goto(visit.url)
    yield visit
    assert [url for url in visit.requests if not url.startswith("data:")] == [visit.url]
    assert visit.errors == []
    visit.close()


def column(page: Any, table: int, number: int) -> list[str]:
    """The texts of a column of a table, blocks left out."""
    rows = page.locator("table").nth(table).locator("tbody tr:not(.block)")
    return [str(row.locator("td").nth(number).inner_text()) for row in rows.all()]


@pytest.mark.slow
def test_the_page_sorts_shows_figures_and_fits_a_phone(visit: Visit, page_file: Path) -> None:
    page = visit.page
    assert page.locator("h2").all_inner_texts() == [
        "Weather over data sets",
        *(f"Heads on {n}" for n in ("sues", "uni", "dense")),
    ]
    headline = page.locator("table").nth(1)
    names, before = column(page, 1, 0), column(page, 1, 3)
    head = headline.locator("thead th").nth(3)
    head.click()
    assert column(page, 1, 3) == ["92.60", "84.0", "80.25 ± 1.2", "9.50 ± 0.41"], "by number, not by text"
    assert head.get_attribute("aria-sort") == "descending" and headline.locator(".block").count() == 0
    head.press("Enter")
    assert column(page, 1, 3) == ["9.50 ± 0.41", "80.25 ± 1.2", "84.0", "92.60"]
    head.click()
    assert column(page, 1, 3) == before and headline.locator(".block").count() == 2
    headline.locator("thead th").nth(2).click()
    assert column(page, 1, 2)[2:] == ["", ""], "empty cells last"
    headline.locator("thead th").first.click()
    headline.locator("thead th").first.click()
    assert column(page, 1, 0) == sorted(names)

    for image in page.locator("img").all():
        assert image.evaluate("each => each.complete && each.naturalWidth > 100")
        box = image.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert page.locator("img").count() == 6

    for details in page.locator("details summary").all():
        details.click()
    assert overflow(page) <= 0, "tables and recipes scroll inside the page"
    cut = page.evaluate(
        """[...document.querySelectorAll('h1, h2, p, dd, figcaption, summary')]
        .filter(each => each.getBoundingClientRect().right > innerWidth || each.scrollWidth > each.clientWidth + 1)
        .map(each => each.textContent)"""
    )
    assert cut == []
    scheme = page.evaluate("getComputedStyle(document.body).backgroundColor")
    name = "dark" if scheme != "rgb(255, 255, 255)" else "light"
    page.screenshot(path=page_file.with_name(f"{name}.png"), full_page=True)


@pytest.mark.slow
def test_text_has_enough_contrast_in_both_schemes(visit: Visit) -> None:
    """At least 4.5 to 1 for every mark of a cell, as WCAG asks."""
    ratios = visit.page.evaluate(
        """() => {
        const light = rgb => { const [r, g, b] = rgb.match(/[\\d.]+/g).map(v => v / 255)
          .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const back = light(getComputedStyle(document.body).backgroundColor);
        return ['.catastrophic', '.large', '.quoted', '.folder', 'a', 'td'].map(name => {
          const text = light(getComputedStyle(document.querySelector(name)).color);
          return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05); });
        }"""
    )
    assert min(ratios) >= 4.5
