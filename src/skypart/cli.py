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
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """SkyPart: find where a drone photo was taken on a satellite map."""
    if version:
        typer.echo(f"skypart {__version__}")
        raise typer.Exit


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
