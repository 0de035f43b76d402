"""Hooks of the documentation site: the reference of the commands, and links that leave the folder `docs`."""

import logging
import os
import re
from pathlib import Path
from typing import Any

import typer.main

from skypart.cli import app

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)]*)?\)")
log = logging.getLogger("mkdocs.hooks.skypart")


OPTIONAL = {
    "How-to": {"Fly with it": "flying.md", "Large maps and clusters": "scale.md", "On board": "onboard.md"},
    "Explanation": {"Experiments": "experiments.md"},
}
"""Pages that are added to the navigation if they exist."""


def on_config(config: Any) -> Any:
    """Add optional pages and all results to the navigation."""
    docs = Path(config["docs_dir"])
    for section in config["nav"]:
        ((title, entries),) = section.items()
        for name, page in OPTIONAL.get(title, {}).items():
            if (docs / page).is_file():
                entries.append({name: page})
        if title == "Results":
            pages = sorted(page for page in (docs / "results").glob("*.md") if page.name != "index.md")
            entries += [{page.stem.replace("-", " ").capitalize(): f"results/{page.name}"} for page in pages]
            more = sorted((docs / "results" / "experiments").glob("*.md"), key=lambda page: page.name != "index.md")
            named = [
                {"Reading" if page.stem == "index" else page.stem.capitalize(): f"results/experiments/{page.name}"}
                for page in more
            ]
            if named:
                entries.append({"Experiments": named})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the commands, and turn links to files outside `docs` into plain text if the file exists."""
    if "<!-- cli -->" in markdown:
        markdown = markdown.replace("<!-- cli -->", commands_markdown())
    folder = (ROOT / "docs" / page.file.src_uri).parent
    return LINK.sub(lambda match: _resolve(match, folder, page.file.src_uri), markdown)


def _resolve(match: re.Match[str], folder: Path, page: str) -> str:
    target = Path(os.path.normpath(folder / match[2]))
    if target.is_relative_to(ROOT / "docs") and not target.is_dir():
        return match[0]
    if not target.exists():
        log.warning("%s links to %s, which does not exist", page, match[2])
    text = match[1]
    return text if text.startswith("`") else f"{text} (`{target.relative_to(ROOT)}`)"


def commands_markdown() -> str:
    """A section for each command: usage, help, arguments and options."""
    root: Any = typer.main.get_command(app)
    sections = []
    for name, command in sorted(root.commands.items()):
        inner = getattr(command, "commands", None)
        listed = [(name, command)] if inner is None else [(f"{name} {sub}", each) for sub, each in inner.items()]
        sections += [_command_markdown(full, each) for full, each in sorted(listed)]
    return "\n\n".join(sections)


def _command_markdown(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    words = [each.make_metavar(_context(command)) if hasattr(each, "make_metavar") else each.name for each in arguments]
    lines = [f"## `skypart {name}`", "", command.help or "", "", "```sh"]
    lines += [f"skypart {name} {'[OPTIONS] ' if options else ''}{' '.join(words)}".rstrip(), "```", ""]
    if arguments or options:
        lines += ["| name | default | meaning |", "|---|---|---|"]
        lines += [_row(each.name.upper(), each) for each in arguments]
        lines += [_row(", ".join([*each.opts, *each.secondary_opts]), each) for each in options]
    return "\n".join(lines)


def _context(command: Any) -> Any:
    return command.context_class(command)


def _row(name: str, each: Any) -> str:
    default = each.default
    shown = "" if default is None or default is False or default == "" or callable(default) else f"`{default}`"
    if each.required:
        shown = "required"
    meaning = (getattr(each, "help", "") or "").replace("|", "\\|")
    variable = each.envvar
    return f"| `{name}` | {shown} | {meaning}{f' Variable: `{variable}`.' if variable else ''} |"
