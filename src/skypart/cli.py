"""The command line: one verb each, no logic of its own. Verbs import what they need when they run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from skypart import __version__
from skypart.errors import SkyPartError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
data_app = typer.Typer(no_args_is_help=True, help="Check and prepare benchmark data sets.")
world_app = typer.Typer(no_args_is_help=True, help="Render benchmark-shaped data from procedural or real worlds.")
app.add_typer(data_app, name="data")
app.add_typer(world_app, name="world")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """SkyPart: find where a drone photo was taken on a satellite map."""
    if version:
        typer.echo(f"skypart {__version__}")
        raise typer.Exit


@data_app.command("check")
def data_check(
    root: Annotated[Path, typer.Argument(help="Folder of the data set.")],
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image fully, not only its header.")] = False,
) -> None:
    """Recognise a data set, count it, open every image, and say what is missing, extra, broken or misplaced."""
    from skypart.datasets.check import check
    from skypart.datasets.check_table import print_report

    report = check(root, decode)
    print_report(report)
    raise typer.Exit(0 if report.ok else 1)


@data_app.command("split-sues")
def data_split_sues(
    raw: Annotated[Path, typer.Argument(help="Raw SUES-200: drone_view_512/ and satellite-view/.")],
    out: Annotated[Path, typer.Argument(help="Folder to make the official split form in.")],
) -> None:
    """Make SUES-200's official Training/Testing folders, with links instead of copies."""
    from skypart.datasets.split_sues import split_sues

    typer.echo(f"{split_sues(raw, out):,} links under {out}")


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence and a non-zero exit."""
    try:
        app()
    except SkyPartError as error:
        typer.echo(f"skypart: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("skypart: stopped; start the same command again to go on", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
