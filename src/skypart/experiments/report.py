"""`skypart report`: one static HTML page of any set of results, without an external request."""

import base64
import csv
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skypart.atomic import check_writable, write_text
from skypart.errors import SkyPartError
from skypart.evaluation.tables import QUOTED
from skypart.experiments.sheet import write_sheets
from skypart.experiments.tables import weather_summary
from skypart.model.storage import read_metadata
from skypart.version import __version__

MAX_FIGURE_BYTES = 4_000_000
MAX_FIGURES = 60


@dataclass(frozen=True)
class Section:
    """The results of one folder. tables: as `Sheet.to_data`. figures: (title, PNG bytes). runs: name -> facts."""

    title: str
    folder: str
    about: str = ""
    tables: list[dict[str, Any]] = field(default_factory=list)
    figures: list[tuple[str, bytes]] = field(default_factory=list)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)


def write_report(folders: Sequence[Path], output: Path) -> None:
    """Write the page of the results in `folders`, and the weather summary of several data sets in files beside it."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise SkyPartError(f"{output}: the report is a web page; end the name in .html")
    check_writable(output)
    sections = [read_section(folder) for folder in folders]
    summary = weather_summary([table for section in sections for table in section.tables])
    if summary:
        write_sheets(output.with_name(f"{output.stem}-tables"), summary)
        about = f"Also as JSON, CSV, Markdown and LaTeX in {output.stem}-tables/."
        sections.insert(0, Section("Weather over data sets", "", about, [sheet.to_data() for sheet in summary]))
    write_text(output, render(sections))


def read_section(folder: Path) -> Section:
    """Read the results of an experiment or an evaluation."""
    if not folder.is_dir():
        raise SkyPartError(f"{folder}: no such folder; pass the output of `skypart experiment` or `skypart evaluate`")
    if (folder / "plan.json").is_file():
        return _experiment(folder)
    results = [folder / name for name in ("result.json", "weather.json") if (folder / name).is_file()]
    if not results:
        raise SkyPartError(f"{folder}: holds no results; pass the output of `skypart experiment` or `skypart evaluate`")
    return _evaluation(folder, results)


def _experiment(folder: Path) -> Section:
    plan = _read_json(folder / "plan.json")
    tables = [_read_json(path) for path in sorted((folder / "tables").glob("*.json"))]
    tables.sort(key=lambda table: (table["name"] != "headline", table["name"]))
    runs = {}
    for run in sorted((folder / "runs").glob("*")):
        models = [run / name for name in ("best.safetensors", "model.safetensors") if (run / name).is_file()]
        if models:
            header = read_metadata(models[0])
            provenance = header["provenance"]
            facts = {key: provenance[key] for key in ("training", "date", "machine", "code") if key in provenance}
            runs[run.name] = {"facts": facts, "recipe": _flatten(header["recipe"])}
    return Section(plan["title"], folder.resolve().name, plan.get("about", ""), tables, _figures(folder), runs)


def _evaluation(folder: Path, results: Sequence[Path]) -> Section:
    tables = []
    content: dict[str, Any] = {}
    for path in results:
        content = _read_json(path)
    for path in sorted(folder.glob("*.csv")):
        lines = path.read_text(encoding="utf-8").splitlines()
        caption, *rows = lines
        cells = list(csv.reader(rows))
        body = []
        for row in cells[1:]:
            mark = "quoted" if len(row) > 1 and row[1].startswith(QUOTED) else ""
            body.append([{"text": text, "mark": mark} for text in row])
        tables.append(
            {"name": path.stem, "caption": caption.lstrip("# "), "headings": cells[0], "rows": body, "blocks": {}}
        )
    title = f"{content.get('model', '')} on {content.get('dataset', folder.name)}"
    facts = {"model": str(content.get("model", "")), "digest": str(content.get("digest", ""))}
    return Section(title, folder.resolve().name, "", tables, _figures(folder), {title: {"facts": facts, "recipe": {}}})


def _figures(folder: Path) -> list[tuple[str, bytes]]:
    found = []
    for path in sorted((folder / "figures").glob("*.png"))[:MAX_FIGURES]:
        if path.stat().st_size <= MAX_FIGURE_BYTES:
            found.append((path.stem.replace("-", " "), path.read_bytes()))
    return found


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SkyPartError(f"{path}: cannot be read ({error}); run the command that made it again") from error


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value)
    return flat


def render(sections: Sequence[Section]) -> str:
    """The whole page."""
    body = "\n".join(_render_section(number, section) for number, section in enumerate(sections))
    links = "".join(f'<li><a href="#s{n}">{html.escape(s.title)}</a></li>' for n, s in enumerate(sections))
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; img-src data:\">"
        f"<title>SkyPart report</title><style>{_STYLE}</style></head><body>"
        f"<header><h1>SkyPart report</h1><p>Made by SkyPart {__version__}. "
        "Click a heading to sort; a third click restores the order.</p>"
        f"<nav><ul>{links}</ul></nav></header><main>{body}</main><script>{_SCRIPT}</script></body></html>\n"
    )


def _render_section(number: int, section: Section) -> str:
    parts = [f"<section id='s{number}'><h2>{html.escape(section.title)}</h2>"]
    if section.folder:
        parts.append(f"<p class='folder'>{html.escape(section.folder)}</p>")
    if section.about:
        parts.append(f"<p>{html.escape(section.about)}</p>")
    parts += [_render_table(table) for table in section.tables]
    for title, content in section.figures:
        encoded = base64.b64encode(content).decode()
        wide = " class='wide'" if title.startswith("parts") else ""
        parts.append(
            f"<figure{wide}><img alt='{html.escape(title)}' src='data:image/png;base64,{encoded}'>"
            f"<figcaption>{html.escape(title)}</figcaption></figure>"
        )
    parts.append(_render_runs(section.runs))
    return "".join(parts) + "</section>"


def _render_table(table: dict[str, Any]) -> str:
    head = "".join(f"<th scope='col' tabindex='0'>{html.escape(h)}</th>" for h in table["headings"])
    rows = []
    for number, row in enumerate(table["rows"]):
        block = table["blocks"].get(str(number))
        if block:
            rows.append(f"<tr class='block'><th colspan='{len(row)}'>{html.escape(block)}</th></tr>")
        cells = "".join(f"<td class='{html.escape(c['mark'])}'>{html.escape(c['text'])}</td>" for c in row)
        rows.append(f"<tr>{cells}</tr>")
    caption = html.escape(table["caption"])
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return (
        f"<div class='table'><p class='caption'>{caption}</p>"
        f"<div class='scroll' tabindex='0'><table aria-label='{caption}'>{body}</table></div></div>"
    )


def _render_runs(runs: dict[str, dict[str, Any]]) -> str:
    """Facts of each run, the recipe settings in which runs differ, and each whole recipe."""
    if not runs:
        return ""
    parts = ["<h3>Runs</h3>"]
    recipes = {name: run["recipe"] for name, run in runs.items() if run["recipe"]}
    keys = sorted({key for recipe in recipes.values() for key in recipe})
    ignored = ("run.out", "backbone.start")
    different = [k for k in keys if k not in ignored and len({r.get(k, "") for r in recipes.values()}) > 1]
    if len(recipes) > 1:
        rows = [
            [{"text": name, "mark": ""}, *({"text": recipe.get(key, ""), "mark": ""} for key in different)]
            for name, recipe in recipes.items()
        ]
        table = {"caption": "What differs between runs", "headings": ["run", *different], "rows": rows, "blocks": {}}
        parts.append(_render_table(table))
    for name, run in runs.items():
        facts = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(str(v))}</dd>" for k, v in run["facts"].items())
        recipe = "\n".join(f"{key} = {value}" for key, value in run["recipe"].items())
        parts.append(
            f"<details><summary>{html.escape(name)}</summary><dl>{facts}</dl>"
            + (f"<pre>{html.escape(recipe)}</pre>" if recipe else "")
            + "</details>"
        )
    return "".join(parts)


_STYLE = """
:root{color-scheme:light dark;--line:#8885;--bad:#b3261e;--mid:#0061b5;--dim:#666;--back:#fff;--mark:#0001}
@media (prefers-color-scheme:dark){:root{--bad:#ff8a80;--mid:#8ab4f8;--dim:#a0a0a0;--back:#161616;--mark:#fff1}}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1200px;padding:1rem;background:var(--back);
overflow-wrap:break-word}
h1,h2,h3{line-height:1.25}h2{margin-top:3rem;border-top:1px solid var(--line);padding-top:1rem}
a{color:var(--mid)}nav ul{padding-left:1.2rem}
.table{margin:1.5rem 0}.caption{font-weight:600;margin:0 0 .4rem;max-width:60rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--back);min-width:6.5rem;
max-width:14rem;white-space:normal}
thead th{cursor:pointer;vertical-align:bottom}thead th:hover,thead th:focus-visible{text-decoration:underline}
thead th::after{content:"\\00a0\\2195";color:var(--dim);font-weight:400}
thead th[aria-sort=ascending]::after{content:"\\00a0\\25B2"}
thead th[aria-sort=descending]::after{content:"\\00a0\\25BC"}
.block th{text-align:left;font-style:italic;max-width:none;
background:linear-gradient(var(--mark),var(--mark)),var(--back)}
.catastrophic{color:var(--bad);font-weight:600}.large{color:var(--mid)}
.minor,.quoted,.folder,figcaption{color:var(--dim)}.quoted{font-style:italic}
figure{margin:1rem 1rem 1rem 0;display:inline-block;max-width:100%;vertical-align:top}
img{display:block;max-width:min(100%,560px);height:auto;background:#fff;border-radius:4px}
figure.wide,figure.wide img{max-width:100%}figcaption{font-size:.85rem}
details{margin:.3rem 0}summary{cursor:pointer}pre{overflow-x:auto;font-size:.8rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .8rem}dt{font-weight:600}dd{margin:0;min-width:0}
"""
_SCRIPT = """
for (const table of document.querySelectorAll('table')) {
  const body = table.tBodies[0], original = [...body.rows];
  for (const head of table.tHead.rows[0].cells) {
    const sort = () => {
      const column = head.cellIndex, before = head.getAttribute('aria-sort');
      const order = before === null ? 'descending' : before === 'descending' ? 'ascending' : null;
      for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
      if (order === null) { body.replaceChildren(...original); return; }
      head.setAttribute('aria-sort', order);
      const text = row => row.cells[column].textContent.trim();
      const compare = (a, b) => {
        const x = text(a), y = text(b), m = parseFloat(x), n = parseFloat(y);
        if (x === '' || y === '') return (x === '') - (y === '');
        const found = Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n;
        return order === 'descending' ? -found : found;
      };
      body.replaceChildren(...original.filter(row => !row.classList.contains('block')).sort(compare));
    };
    head.addEventListener('click', sort);
    head.addEventListener('keydown', event => {
      if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); sort(); }
    });
  }
}
"""
