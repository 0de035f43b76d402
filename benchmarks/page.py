"""Write the page of a benchmark, with the command, date, machine and version at its end."""

import datetime
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from skypart.atomic import write_text
from skypart.progress import console
from skypart.training.checkpoint import code_version


def write_page(out: Path, lines: Sequence[str]) -> None:
    """Write `lines` of Markdown and what made them, and print them."""
    made = (
        f"Made by `python {shlex.join(sys.argv)}` on {datetime.date.today().isoformat()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, no GPU, skypart {code_version()}."
    )
    text = "\n".join([*lines, "", made])
    write_text(out, text + "\n")
    console.print(text)
