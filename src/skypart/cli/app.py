"""The application: what `skypart` itself does, and the commands in the order in which its help lists them."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from skypart.cli.data import data_app, weather, world_app
from skypart.cli.models import bench, embed, export, info, models, new, parts
from skypart.cli.options import DeviceOption, ModelOption
from skypart.cli.positions import calibrate, fly, index, locate, maps, serve, track
from skypart.cli.training import evaluate, experiment, report, train
from skypart.errors import SkyPartError
from skypart.version import __version__

SETTINGS = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SKYPART"}
"""`-h` works everywhere, and SKYPART_<COMMAND>_<OPTION> sets the default of any option."""


def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", allow_from_autoenv=False, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print details on standard error.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress bars and no warnings.")] = False,
) -> None:
    """SkyPart: find where a drone photo was taken on a satellite map."""
    from skypart.progress import set_up_terminal

    if version:
        typer.echo(f"skypart {__version__}")
        raise typer.Exit
    if quiet and verbose:
        raise SkyPartError("--quiet and --verbose contradict each other; give one")
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
    set_up_terminal(logging.ERROR if quiet else logging.DEBUG if verbose else logging.WARNING, bars=not quiet)


def doctor() -> None:
    """Print versions, hardware, folders searched for weights, and how to install what is missing."""
    from skypart.doctor import print_report, report

    print_report(report())


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Output folder.")] = Path("demo-out"),
    real: Annotated[
        Path | None, typer.Option(help="Run on this folder instead: a GeoTIFF, labelled photos and a video.")
    ] = None,
    model: ModelOption = "default",
    device: DeviceOption = "cpu",
    page: Annotated[
        bool | None, typer.Option(help="Open the web page at the end (default: if there is a display).")
    ] = None,
) -> None:
    """Index a generated town, locate photos, track a flight, and show the results on a map and a web page."""
    from skypart.demo import run_demo

    run_demo(output, real, model, page, device)


def _make_app() -> typer.Typer:
    """The application with all its commands."""
    made = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, context_settings=SETTINGS)
    made.callback(invoke_without_command=True)(root)
    for command in (
        doctor,
        demo,
        new,
        embed,
        parts,
        info,
        models,
        export,
        bench,
        train,
        evaluate,
        experiment,
        report,
        weather,
        index,
        maps,
        locate,
        calibrate,
        track,
        fly,
        serve,
    ):
        made.command()(command)
    made.add_typer(data_app, name="data")
    made.add_typer(world_app, name="world")
    return made


app = _make_app()
