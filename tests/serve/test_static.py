import re

import pytest
from fastapi.testclient import TestClient

from skypart.serve.assets import STATIC

OURS = sorted(path for path in STATIC.rglob("*") if path.is_file() and "vendor" not in path.parts)
TEXT = [path for path in OURS if path.suffix in (".html", ".css", ".js", ".svg")]


def test_the_page_has_all_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    names = re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text)
    assert len(names) > 5
    for name in names:
        if "/vendor/" not in name:
            assert client.get(name).status_code == 200, name
    modules = [path for path in OURS if path.suffix == ".js"]
    for module in modules:
        for name in re.findall(r'from "\./([a-z]+\.js)"', module.read_text()):
            assert (module.parent / name).is_file()


@pytest.mark.parametrize("path", TEXT, ids=lambda path: path.name)
def test_no_file_links_to_another_server(path: object) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")  # type: ignore[attr-defined]
    assert not re.search(r"https?:|//[a-z]+\.", text)


@pytest.mark.parametrize("path", [path for path in TEXT if path.suffix == ".html"], ids=lambda path: path.name)
def test_there_are_no_inline_scripts_or_styles(path: object) -> None:
    text = path.read_text()  # type: ignore[attr-defined]
    assert not re.search(r"\sstyle=|\son[a-z]+=|<style|<script(?![^>]*\ssrc=)", text)


def test_browsers_revalidate_the_page(client: TestClient) -> None:
    for path in ("/", "/static/js/main.js"):
        response = client.get(path)
        assert response.headers["cache-control"] == "no-cache" and response.headers["etag"]


def test_unchanged_files_are_not_sent_again(client: TestClient) -> None:
    tag = client.get("/static/js/main.js").headers["etag"]
    assert client.get("/static/js/main.js", headers={"if-none-match": tag}).status_code == 304


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb, as WCAG 2 defines it."""
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def themes() -> dict[str, dict[str, str]]:
    """The colours of both themes."""
    text = (STATIC / "css" / "base.css").read_text()
    blocks = re.findall(r"^:root(\S*) \{(.*?)^\}", text, re.S | re.M)
    found = {name or "light": dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", body)) for name, body in blocks}
    assert len(found) == 2
    return found


@pytest.mark.parametrize("theme", sorted(themes()))
@pytest.mark.parametrize(
    ("front", "back"),
    [
        *((front, back) for front in ("ink", "soft") for back in ("card", "ground", "sunken")),
        ("accent", "card"),
        ("accent", "accent-wash"),
        ("accent-ink", "accent"),
        *((state, f"{state}-wash") for state in ("held", "moved", "lost")),
    ],
)
def test_text_has_enough_contrast_in_both_themes(theme: str, front: str, back: str) -> None:
    colours = themes()[theme]
    light, dark = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5
