"""README, changelog and site: short sentences, links that lead somewhere, pictures of the shipped model, notebooks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.pictures import DRAWN, WITHOUT_A_MODEL

from skypart.embedding.shipped import pinned_sha256, shipped_model
from skypart.position.confidence import MATCHING_VERSION
from skypart.recipe_files import RECIPES, find_recipe, recipe_names
from skypart.version import __version__

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLAIN = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "src/skypart/weights/README.md"),
    *(f"docs/results/{name}.md" for name in ("index", "default-model", "install-size")),
    *(
        str(page.relative_to(ROOT))
        for folder in (".", "tutorials", "howto", "reference")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
GENERATED = re.compile(r"<!-- figures -->.*?<!-- end -->", re.DOTALL)


def prose(text: str) -> list[str]:
    """The sentences of a page, without code, tables, links' targets and what a benchmark wrote."""
    text = GENERATED.sub("", text)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!["))]
    text = re.sub(r"\]\([^)]*\)", "]", "\n".join(lines))
    return [part for part in re.split(r"(?<=[.:;!?])[\s*]+|\n\s*[-\d]+\.?\s|\n\n", text) if part.strip()]


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows, without headings, code and what a benchmark wrote."""
    lines = [line for line in GENERATED.sub("", text).splitlines() if line.startswith("|") and "---" not in line]
    return [[re.sub(r"\]\([^)]*\)|`[^`]*`", "]", cell) for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("page", PLAIN)
def test_no_sentence_has_more_than_30_words(page: str) -> None:
    long = [each for each in prose((ROOT / page).read_text(encoding="utf-8")) if len(each.split()) > 30]
    assert not long


@pytest.mark.parametrize("page", PLAIN)
def test_no_cell_of_a_table_has_more_than_two_numbers(page: str) -> None:
    number = re.compile(r"(?<![\w.@-])\d[\d,.]*(?:e-\d+)?(?![\w-])")
    crowded = [c for row in rows((ROOT / page).read_text(encoding="utf-8")) for c in row if len(number.findall(c)) > 2]
    assert not crowded


def test_the_readme_has_at_most_ten_results_with_one_number_each() -> None:
    results = [row for row in rows(README) if "docs/results" not in row[0] and "result" not in row[1]]
    assert 0 < len(results) <= 10
    assert all(len(re.findall(r"\d[\d.,]*", row[1])) == 1 for row in results)


@pytest.mark.parametrize("page", PLAIN)
def test_a_figure_that_is_a_link_is_on_the_page_it_leads_to(page: str) -> None:
    """`[65 %](results/calibration.md)` needs a number there that is 65 when rounded as it is here."""
    number = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
    text = (ROOT / page).read_text(encoding="utf-8")
    for shown, target in re.findall(r"\[(\d[^\]]*)\]\(([^)#]*results/[^)#]+\.md)\)", text):
        figure = number.findall(shown)[0].replace(",", "")
        digits = len(figure.partition(".")[2])
        there = number.findall(((ROOT / page).parent / target).read_text(encoding="utf-8"))
        assert f"{float(figure):.{digits}f}" in {f"{float(each.replace(',', '')):.{digits}f}" for each in there}, shown


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files_of_the_repository(page: str) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert not [target for target in targets if not (ROOT / target).exists()]


def test_benchmarks_find_their_neighbours_when_run_as_their_pages_say() -> None:
    """`python benchmarks/x.py` puts only that folder on the path; `python -m benchmarks.x` needs nothing."""
    for file in sorted((ROOT / "benchmarks").glob("*.py")):
        text = file.read_text(encoding="utf-8")
        needs = "__main__" in text and re.search(r"^\s*from (benchmarks|tests)\.", text, re.M)
        if needs and f"python -m benchmarks.{file.stem}" not in text:
            assert "sys.path.insert(0, str(Path(__file__).resolve().parent" in text, file.name


def test_the_readme_names_no_folder_that_a_clone_lacks() -> None:
    assert "../" not in README


def test_limits_and_caveat_are_in_the_readme() -> None:
    for words in ("60 to 320 m", "32°", "Never use it as the only source of position", "23.36 M", "25.14 M"):
        assert words in README
    assert "which run was shipped was chosen by looking at some of these sets" in README


def test_the_pictures_were_drawn_by_the_shipped_model() -> None:
    images = ROOT / "docs" / "images"
    record = json.loads((images / "pictures.json").read_text(encoding="utf-8"))
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {
        name for page in pages for name in re.findall(r"\]\((?:\S*/)?images/(\S+?\.jpg)\)", page.read_text("utf-8"))
    }
    assert len(shown) >= 7 and all((images / name).is_file() for name in shown)
    assert shown == set(record) | set(WITHOUT_A_MODEL), "run `make pictures`"
    assert {name for _, written in DRAWN.values() for name in written} == set(record)
    for name, entry in record.items():
        assert entry["model_sha256"] == pinned_sha256(shipped_model()), f"{name}: run `make pictures`"
        assert entry.get("matching", MATCHING_VERSION) == MATCHING_VERSION, f"{name}: run `make pictures`"
    assert all("matching" in record[name] for name in record if name.startswith("demo-"))


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.M)
    assert releases[0] == ("Unreleased", "") and all(date for _, date in releases[1:])
    assert set(re.findall(r"^### (.+)$", text, re.M)) <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }
    assert __version__ in [name for name, _ in releases]
    assert f"version: {releases[1][0]}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_recipes_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "sues200" in recipe_names()
    for name in ("sues200", "sues200.toml", "recipes/sues200.toml"):
        assert find_recipe(name) == RECIPES / "sues200.toml"
    assert find_recipe("default-model/common") == RECIPES / "default-model" / "common.toml"
    assert find_recipe("none") == Path("none")
    (tmp_path / "sues200").write_text("")
    assert find_recipe("sues200") == Path("sues200"), "one's own file comes first"


def test_the_readme_on_a_package_index_has_no_relative_links() -> None:
    code = (
        "import runpy, setuptools\n"
        "setuptools.setup = lambda **given: print(given['long_description'])\n"
        "runpy.run_path('setup.py')"
    )
    for address in ("", "https://example.org/skypart"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT, env={"SKYPART_REPOSITORY_URL": address}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "# SkyPart" in done.stdout and not re.findall(r"\]\((?!https?:|#)", done.stdout)
        assert ("https://example.org/skypart/blob/main/docs/limits.md" in done.stdout) == bool(address)


@pytest.mark.slow
def test_the_site_builds_with_strict_links(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs_jupyter", reason="needs skypart[docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    commands = (tmp_path / "site" / "reference" / "cli.html").read_text(encoding="utf-8")
    assert "SKYPART_DEVICE" in commands and "skypart world make" in commands
    assert "build_index" in (tmp_path / "site" / "reference" / "api.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["locate", "embeddings"])
def test_notebooks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    book = nbformat.read(ROOT / "docs" / "notebooks" / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = json.dumps([cell.get("outputs") for cell in book.cells])
    if name == "locate":
        assert "within" in outputs and "almost white" in outputs and "data:image/jpeg;base64" in outputs
    else:
        assert "right tile first: " in outputs and "(768,)" in outputs
