"""Commands on data sets: check, fetch and render them, and change the weather of photos."""

from pathlib import Path
from typing import Annotated

import typer

from skypart.cli.options import WeatherSeedOption
from skypart.errors import SkyPartError

data_app = typer.Typer(no_args_is_help=True, help="Check and prepare benchmark data sets.")
world_app = typer.Typer(no_args_is_help=True, help="Render data sets in benchmark layout from procedural or real maps.")


def weather(
    source: Annotated[Path, typer.Argument(help="Photo, or folder of photos.")],
    out: Annotated[Path | None, typer.Argument(help="Output folder, if SOURCE is a folder.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Contact sheet to write, if SOURCE is a photo.")
    ] = None,
    condition: Annotated[str | None, typer.Option(help="For a folder: one of the ten conditions.")] = None,
    profile: Annotated[str, typer.Option(help="For a folder: paper or weatherprompt.")] = "paper",
    seed: WeatherSeedOption = 0,
    severity: Annotated[
        float | None, typer.Option(help="For a folder: 0 to 1, instead of the profile's parameters.")
    ] = None,
) -> None:
    """Apply all ten weather conditions to a photo (-o sheet.png), or one to a folder (OUT --condition NAME)."""
    from skypart.images.weather.folder import corrupt_folder
    from skypart.images.weather.sheet import save_contact_sheet

    if source.is_dir():
        if out is None or condition is None or output is not None:
            raise SkyPartError(
                f"{source}: a folder needs an output folder and --condition, and no sheet; see skypart weather --help"
            )
        done = corrupt_folder(source, out, condition, profile, seed, severity)
        typer.echo(f"{out}: {done.written} images written, {done.skipped} already there")
        return
    if output is None or out is not None or (condition, profile, severity) != (None, "paper", None):
        raise SkyPartError(
            f"{source}: a photo needs -o sheet.png, which shows all conditions of both profiles; an output folder, "
            "--condition, --profile and --severity are for folders of photos"
        )
    save_contact_sheet(source, output, seed)
    typer.echo(f"{output}: {source.name} in ten conditions, both profiles")


@data_app.command("check")
def data_check(
    root: Annotated[Path, typer.Argument(help="Data set folder.")],
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image, not just its header.")] = False,
) -> None:
    """Detect a data set's format, count and open its images, and list what is missing, extra, broken or misplaced."""
    from skypart.datasets.check import check, print_report

    report = check(root, decode)
    print_report(report)
    raise typer.Exit(0 if report.ok else 1)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str | None, typer.Argument(help="Data set, or all; lists the data sets if omitted.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Parent folder; each data set gets its own.")] = Path(
        "data"
    ),
) -> None:
    """Download the public data that the default model was trained on. Resumes if interrupted."""
    from skypart.datasets.fetch import fetch, print_sets

    if name is None:
        print_sets()
    else:
        fetch(name, output, typer.echo)


@data_app.command("split-sues")
def data_split_sues(
    raw: Annotated[Path, typer.Argument(help="Raw SUES-200: drone_view_512/ and satellite-view/.")],
    out: Annotated[Path, typer.Argument(help="Output folder for the official split.")],
) -> None:
    """Create SUES-200's official Training/Testing folders, with links instead of copies."""
    from skypart.datasets.split_sues import split_sues

    typer.echo(f"{split_sues(raw, out):,} links under {out}")


@world_app.command("make")
def world_make(
    out: Annotated[Path, typer.Argument(help="Output folder of the data set.")],
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            envvar="SKYPART_WORLD_MAKE_FROM",
            help="`procedural`, or a raster file or folder; repeatable.",
        ),
    ] = None,
    locations: Annotated[int | None, typer.Option(help="Number of locations (default 200).")] = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same bytes.")] = 0,
    like: Annotated[
        str, typer.Option(help="Layout, e.g. sues200, or free for training; a wrong name lists all.")
    ] = "sues200",
    preset: Annotated[str, typer.Option(help="`tiny`: takes a few seconds, for tests.")] = "",
    image_size: Annotated[int | None, typer.Option(help="Edge length of the images in pixels (default 512).")] = None,
    drone_per_altitude: Annotated[int | None, typer.Option(help="Drone images per location and altitude.")] = None,
    styles: Annotated[str, typer.Option(help="Styles of procedural regions, comma-separated.")] = "",
    spacing: Annotated[float | None, typer.Option(help="Distance between locations, metres.")] = None,
    skip: Annotated[str, typer.Option(help="Name prefixes of real maps to skip, comma-separated.")] = "",
    only: Annotated[str, typer.Option(help="Name prefixes of the only real maps to use, comma-separated.")] = "",
    surround: Annotated[
        bool, typer.Option("--surround", help="Surround small maps of an index.csv with others of their city.")
    ] = False,
    guess_heights: Annotated[
        bool, typer.Option("--guess-heights", help="Guess roof and tree heights of flat real maps from their pixels.")
    ] = False,
    strength: Annotated[
        float, typer.Option(help="Appearance gap between the two views: 0 none, 1 as in real data.")
    ] = 1.0,
    maps: Annotated[bool, typer.Option(help="Write a GeoTIFF of each map.")] = True,
    workers: Annotated[int, typer.Option(help="Processes (default: one per core).")] = 0,
) -> None:
    """Render a data set in benchmark layout from procedural or real maps."""
    from skypart.worlds.make import make_world
    from skypart.worlds.request import build_request

    request = build_request(
        source,
        preset,
        styles,
        strength,
        skip,
        only,
        locations=locations,
        seed=seed,
        like=like,
        image_size=image_size,
        views=drone_per_altitude,
        spacing=spacing,
        maps=maps,
        surround=surround,
        guess_heights=guess_heights,
    )
    make_world(out, request, workers)
    typer.echo(f"made {request.locations} locations in {out}")


@world_app.command("sheet")
def world_sheet(
    root: Annotated[Path, typer.Argument(help="Data set written by `skypart world make`.")],
    output: Annotated[Path, typer.Option("-o", "--output", "--out", help="Image to write.")] = Path("sheet.png"),
    rows: Annotated[int, typer.Option(help="Number of locations to show.")] = 8,
    start: Annotated[int, typer.Option(help="First location to show, counted from 0.")] = 0,
) -> None:
    """Draw a contact sheet: each location's satellite tile beside its drone views."""
    from skypart.worlds.sheet import write_sheet

    write_sheet(root, output, rows, start)
    typer.echo(f"wrote {output}")
