"""The command line: one verb each, no logic of its own. Verbs import what they need when they run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from skypart.errors import SkyPartError
from skypart.version import __version__

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


@app.command()
def doctor() -> None:
    """Print versions, cores, accelerators, where weights are looked for, what is missing and how to get it."""
    from skypart.doctor import print_report, report

    print_report(report())


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for what the demo makes.")] = Path("demo-out"),
    real: Annotated[Path | None, typer.Option(help="Folder with a GeoTIFF, labelled photos and a video.")] = None,
    model: Annotated[str, typer.Option(help="Model name or file.")] = "default",
    page: Annotated[bool | None, typer.Option(help="Open the page at the end (default: with a display).")] = None,
) -> None:
    """Index a town, locate photos of it, track a flight over it, and show the results on a map and a page."""
    from skypart.demo import run_demo

    run_demo(output, real, model, page)


@app.command()
def new(
    backbone: Annotated[str, typer.Argument(help="Published name, hub OWNER/NAME, folder or file of a ViT.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Model file to write (.safetensors).")],
    size: Annotated[int, typer.Option(help="Input size in pixels.")] = 448,
    seed: Annotated[int, typer.Option(help="Seed of the untrained head.")] = 0,
) -> None:
    """Put an untrained SkyPart head on a pretrained backbone."""
    from skypart.model.embedder import new_model
    from skypart.model.storage import save_model

    save_model(new_model(backbone, size, seed), output)
    typer.echo(f"wrote {output}: an untrained head on {backbone}; train it with `skypart train`")


@app.command()
def embed(
    photos: Annotated[list[Path], typer.Argument(help="Photos, or folders of photos.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write (.npz: paths, embeddings).")],
    model: Annotated[str, typer.Option(help="Model file, hub name, or default.")] = "default",
    batch_size: Annotated[int, typer.Option(help="Photos a forward pass.")] = 16,
    size: Annotated[int | None, typer.Option(help="Input size in pixels, if not the model's own.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")] = "cpu",
) -> None:
    """Embed photos: float32 vectors of unit length, one a photo."""
    from skypart.embedding import load
    from skypart.embedding.files import embed_files

    count = embed_files(load(model, device, size), photos, output, batch_size)
    typer.echo(f"wrote {output}: {count} embeddings")


@app.command()
def parts(
    photo: Annotated[Path, typer.Argument(help="A photo.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Picture to write.")],
    model: Annotated[str, typer.Option(help="Model file, hub name, or default.")] = "default",
    size: Annotated[int | None, typer.Option(help="Input size in pixels, if not the model's own.")] = None,
) -> None:
    """Draw a photo beside its parts: one colour a prototype, with centroids and their graph."""
    from skypart.drawing.files import save_image
    from skypart.embedding import load
    from skypart.embedding.parts_figure import parts_picture
    from skypart.images.decode import read_rgb

    image = read_rgb(photo)
    save_image(parts_picture(image, load(model, size=size).explain(image), photo.name), output)
    typer.echo(f"wrote {output}")


@app.command()
def info(
    model: Annotated[str, typer.Argument(help="Model file, hub name, or default.")],
    size: Annotated[int | None, typer.Option(help="Input size for the arithmetic, if not the model's own.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print parameters, multiply-adds in every convention, recipe and provenance of a model."""
    from skypart.model.report import describe, print_description

    print_description(describe(model, size), json)


@app.command()
def models(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the shipped model, those in your caches, and the backbones known by name."""
    from skypart.model.catalogue import list_models, print_models

    print_models(list_models(), json)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe, e.g. recipes/sues200.toml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value, e.g. data.root=/data/SUES.")] = None,
    overfit: Annotated[bool, typer.Option("--overfit", help="Learn a handful of locations by heart: a check.")] = False,
) -> None:
    """Train a model from a recipe; the same command goes on where a run was broken off."""
    from skypart.training.run import train_recipe

    told, code = train_recipe(recipe, overrides or [], overfit)
    typer.echo(told, nl=bool(told))
    raise typer.Exit(code)


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="Model file, hub name, or default.")],
    data: Annotated[Path, typer.Argument(help="Folder of the data set; its kind is recognised.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder for tables and figures.")] = None,
    gallery: Annotated[str, typer.Option(help="full, or masked as some peers do.")] = "full",
    flip: Annotated[bool, typer.Option("--flip", help="Add the mirrored image's features, as some peers do.")] = False,
    figures: Annotated[bool, typer.Option("--figures", help="Draw retrieval sheets, histogram, error map.")] = False,
    weather: Annotated[str | None, typer.Option(help="Weather profile: paper or weatherprompt.")] = None,
    severity: Annotated[str | None, typer.Option(help="With --weather: points of a curve, such as 0.25,0.5,1.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the weather.")] = 0,
    size: Annotated[int | None, typer.Option(help="Input size in pixels, if not the model's own.")] = None,
    readout: Annotated[str | None, typer.Option(help="Ablation of the same weights: cls, part, no_graph.")] = None,
    batch_size: Annotated[int, typer.Option(help="Images a forward pass.")] = 16,
    cache: Annotated[Path | None, typer.Option(help="Folder of cached embeddings.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")] = "cpu",
) -> None:
    """Run a data set's whole protocol, in clear or in ten weathers; stop and start again at will."""
    from skypart.evaluation.run import EvaluateOptions, evaluate_files

    options = EvaluateOptions(
        output, gallery, flip, figures, weather, severity, seed, size, readout, batch_size, cache, device
    )
    evaluate_files(model, data, options)


@app.command()
def weather(
    source: Annotated[Path, typer.Argument(help="A photo, or a folder of photos.")],
    out: Annotated[Path | None, typer.Argument(help="Folder to write to, when SOURCE is a folder.")] = None,
    sheet: Annotated[Path | None, typer.Option("-o", "--output", help="Contact sheet of a photo.")] = None,
    condition: Annotated[str | None, typer.Option(help="One of the ten conditions, for a folder.")] = None,
    profile: Annotated[str, typer.Option(help="paper or weatherprompt, for a folder.")] = "paper",
    seed: Annotated[int, typer.Option(help="Another seed gives other draws.")] = 0,
    severity: Annotated[float | None, typer.Option(help="0 to 1 instead of the profile's parameters.")] = None,
) -> None:
    """Put a photo under all ten conditions (-o sheet.png), or a folder under one (OUT --condition NAME)."""
    from skypart.images.weather.folder import corrupt_folder
    from skypart.images.weather.sheet import save_contact_sheet

    if source.is_dir():
        if out is None or condition is None or sheet is not None:
            raise SkyPartError(
                f"{source}: a folder needs a target folder and --condition, no sheet; see skypart weather --help"
            )
        done = corrupt_folder(source, out, condition, profile, seed, severity)
        typer.echo(f"{out}: {done.written} images written, {done.skipped} stood there already")
        return
    if sheet is None or out is not None or (condition, profile, severity) != (None, "paper", None):
        raise SkyPartError(
            f"{source}: a photo needs -o sheet.png and shows all conditions of both profiles; a target folder, "
            "--condition, --profile and --severity are for folders of photos"
        )
    save_contact_sheet(source, sheet, seed)
    typer.echo(f"{sheet}: {source.name} under ten conditions, both profiles")


@data_app.command("check")
def data_check(
    root: Annotated[Path, typer.Argument(help="Folder of the data set.")],
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image fully, not only its header.")] = False,
) -> None:
    """Recognise a data set, count it, open every image, and say what is missing, extra, broken or misplaced."""
    from skypart.datasets.check import check, print_report

    report = check(root, decode)
    print_report(report)
    raise typer.Exit(0 if report.ok else 1)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str | None, typer.Argument(help="Name of a set, or all; without one, they are listed.")] = None,
    out: Annotated[Path, typer.Option("-o", "--output", help="The set gets its own folder in it.")] = Path("data"),
) -> None:
    """Get the public data the default model was trained on from its sources; stop and start again at will."""
    from skypart.datasets.fetch import fetch, print_sets

    if name is None:
        print_sets()
    else:
        fetch(name, out, typer.echo)


@data_app.command("split-sues")
def data_split_sues(
    raw: Annotated[Path, typer.Argument(help="Raw SUES-200: drone_view_512/ and satellite-view/.")],
    out: Annotated[Path, typer.Argument(help="Folder to make the official split form in.")],
) -> None:
    """Make SUES-200's official Training/Testing folders, with links instead of copies."""
    from skypart.datasets.split_sues import split_sues

    typer.echo(f"{split_sues(raw, out):,} links under {out}")


@app.command()
def index(
    maps: Annotated[list[str], typer.Argument(help="GeoTIFF, picture with world file, tile folder or archive, CSV.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Index folder to make or add to.")],
    model: Annotated[str, typer.Option(help="Model name or file.")] = "default",
    sizes: Annotated[str, typer.Option(help="Edges of the views in metres, with commas.")] = "",
    overlap: Annotated[float | None, typer.Option(help="Share that neighbouring views have in common.")] = None,
    rotations: Annotated[int | None, typer.Option(help="Directions each view is embedded in.")] = None,
    size: Annotated[int | None, typer.Option(help="Model input in pixels.")] = None,
    network: Annotated[bool, typer.Option(help="Allow maps on the network.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Cut maps into views, embed them, and keep them as an index; stopped work goes on where it was."""
    from skypart.embedding import load
    from skypart.maps.build import build_index
    from skypart.maps.cut import view_options

    options = view_options(sizes, overlap, rotations)
    added = build_index(maps, output, load(model, device, size), model, options, network)
    for name, views in added.items():
        typer.echo(f"indexed {name}: {views} views")
    if not added:
        typer.echo(f"{output} holds these maps already")


@app.command()
def maps(
    index: Annotated[Path, typer.Argument(help="An index made by `skypart index`.")],
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file of its store with its SHA-256.")] = False,
    remove: Annotated[str, typer.Option(metavar="NAME", help="Take this map out.")] = "",
) -> None:
    """List the maps of an index, check its files, or take a map out of it."""
    from rich.console import Console

    from skypart.maps.index import MapIndex
    from skypart.maps.upkeep import maps_table, remove_map

    if remove:
        typer.echo(f"removed {remove}: {remove_map(index, remove)} views")
    opened = MapIndex(index)
    if verify:
        opened.store.verify()
    Console().print(maps_table(opened))
    if verify:
        typer.echo("every file is as it was written")


@app.command()
def locate(
    index: Annotated[Path, typer.Argument(help="An index made by `skypart index`.")],
    photos: Annotated[list[Path], typer.Argument(help="Photos, or folders of photos.")],
    near: Annotated[str, typer.Option(help="LAT,LON: search around this place only.")] = "",
    radius: Annotated[float | None, typer.Option(help="Metres around --near (default 1000).")] = None,
    heading: Annotated[float | None, typer.Option(help="Compass degrees that are up in the photos.")] = None,
    altitude: Annotated[float | None, typer.Option(help="Metres above the ground.")] = None,
    tilt: Annotated[float | None, typer.Option(help="Degrees below the horizon; 90 is straight down.")] = None,
    fov: Annotated[float | None, typer.Option(help="Field of view across the photo, degrees.")] = None,
    no_exif: Annotated[bool, typer.Option("--no-exif", help="Leave what photos say of their camera aside.")] = False,
    format: Annotated[
        str, typer.Option(help="table, json, geojson, csv, kml or gpx (default: by the suffix of -o, else table).")
    ] = "",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write instead of the screen.")] = None,
    model: Annotated[str, typer.Option(help="Model name or file, if it was moved since indexing.")] = "",
    network: Annotated[bool, typer.Option(help="Allow maps on the network.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Say where photos were taken, with a 95 % error radius, or why not (exit code 3 if any has no fix)."""
    from skypart.atomic import check_place, write_text
    from skypart.bridge.formats import FIX_FORMATS, write_fixes
    from skypart.position.photos import NO_FIX, locate_photos, open_locator, read_format, read_hints, read_prior

    write_fixes([], format or "table")
    format = read_format(format, output, FIX_FORMATS)
    if output is not None:
        check_place(output)
    hints = read_hints(heading, altitude, tilt, fov)
    prior = read_prior(near, radius)
    locator = open_locator(index, model, device, network=network)
    fixes = locate_photos(locator, photos, prior, hints, exif=not no_exif)
    text = write_fixes(fixes, format)
    if output is None:
        typer.echo(text)
    else:
        write_text(output, text)
    if not all(fix.found for fix in fixes):
        raise typer.Exit(NO_FIX)


@app.command()
def calibrate(
    index: Annotated[Path, typer.Argument(help="An index made by `skypart index`.")],
    labelled: Annotated[Path, typer.Argument(help="CSV of photos with latitude and longitude, or a folder with one.")],
    outside: Annotated[list[Path] | None, typer.Option(help="Photos from outside the map; may be repeated.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Picture of the diagrams.")] = Path("calibration.png"),
    model: Annotated[str, typer.Option(help="Model name or file, if it was moved since indexing.")] = "",
    network: Annotated[bool, typer.Option(help="Allow maps on the network.")] = False,
) -> None:
    """Fit confidence and error radius on photos of known position and store them in the index."""
    from skypart.position.calibrate import run_calibration
    from skypart.position.photos import open_locator

    typer.echo(run_calibration(open_locator(index, model, network=network), labelled, outside or [], output))


@app.command()
def track(
    index: Annotated[Path, typer.Argument(help="An index made by `skypart index`.")],
    flight: Annotated[Path, typer.Argument(help="Video, or folder of photos.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Track to write: .gpx, .geojson, .csv or .kml.")],
    rate: Annotated[float, typer.Option(help="Frames a second to take from a video.")] = 1.0,
    interval: Annotated[float, typer.Option(help="Seconds between photos without a time.")] = 1.0,
    max_speed: Annotated[float, typer.Option(help="Metres a second the drone can fly.")] = 25.0,
    truth: Annotated[Path | None, typer.Option(help="CSV of true positions, to score the track.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Map picture of fixes and path.")] = None,
    model: Annotated[str, typer.Option(help="Model name or file, if it was moved since indexing.")] = "",
    network: Annotated[bool, typer.Option(help="Allow maps on the network.")] = False,
) -> None:
    """Follow a flight: locate its frames and filter them into one path."""
    from skypart.bridge.follow import follow
    from skypart.position.photos import open_locator
    from skypart.position.track_options import TrackOptions

    options = TrackOptions(max_speed=max_speed)
    locator = open_locator(index, model, network=network)
    typer.echo(follow(locator, flight, output, options, rate, interval, truth, picture))


@app.command()
def serve(
    index: Annotated[Path, typer.Argument(help="An index made by `skypart index`.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    api_key: Annotated[str, typer.Option(envvar="SKYPART_API_KEY", help="Key that requests must carry.")] = "",
    examples: Annotated[Path | None, typer.Option(help="Folder of photos to try on the page.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = False,
    model: Annotated[str, typer.Option(help="Model name or file, if it was moved since indexing.")] = "",
    network: Annotated[bool, typer.Option(help="Allow maps on the network.")] = False,
) -> None:
    """Answer photos over HTTP, with a page to try them on."""
    from skypart.position.photos import open_locator
    from skypart.serve.index_service import IndexService
    from skypart.serve.options import ServeOptions
    from skypart.serve.server import run_server

    service = IndexService(open_locator(index, model, network=network), examples)
    run_server(service, ServeOptions(host=host, port=port, api_key=api_key or None), open_browser=browser)


@world_app.command("make")
def world_make(
    out: Annotated[Path, typer.Argument(help="New folder of the data set.")],
    source: Annotated[
        list[str] | None, typer.Option("--from", help="`procedural`, or a raster file or folder; may be repeated.")
    ] = None,
    locations: Annotated[int | None, typer.Option(help="Number of locations (default 200).")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    like: Annotated[
        str, typer.Option(help="Layout, e.g. sues200, or free for training; a wrong name lists all.")
    ] = "sues200",
    preset: Annotated[str, typer.Option(help="`tiny`: a few seconds, for tests.")] = "",
    image_size: Annotated[int | None, typer.Option(help="Edge of the pictures in pixels (default 512).")] = None,
    drone_per_altitude: Annotated[int | None, typer.Option(help="Drone pictures a location and altitude.")] = None,
    styles: Annotated[str, typer.Option(help="Styles of procedural regions, with commas.")] = "",
    spacing: Annotated[float | None, typer.Option(help="Metres between locations.")] = None,
    skip: Annotated[str, typer.Option(help="Beginnings of names of real maps to leave out, with commas.")] = "",
    only: Annotated[str, typer.Option(help="Beginnings of names of real maps to take alone, with commas.")] = "",
    surround: Annotated[
        bool, typer.Option("--surround", help="Small maps of an index.csv lie among others of their city.")
    ] = False,
    guess_heights: Annotated[
        bool, typer.Option("--guess-heights", help="Flat real maps get roofs and crowns guessed from their pictures.")
    ] = False,
    strength: Annotated[float, typer.Option(help="How far the two views differ: 0 not, 1 as real ones.")] = 1.0,
    maps: Annotated[bool, typer.Option(help="Write a GeoTIFF of each map.")] = True,
    workers: Annotated[int, typer.Option(help="Processes (default: one a core).")] = 0,
) -> None:
    """Render a benchmark-shaped data set from a procedural or a real world."""
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
    root: Annotated[Path, typer.Argument(help="A data set made by `skypart world make`.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Picture to write.")] = Path("sheet.png"),
    rows: Annotated[int, typer.Option(help="Locations to show.")] = 8,
    start: Annotated[int, typer.Option(help="First location to show, counted from 0.")] = 0,
) -> None:
    """Draw a contact sheet: each location's satellite tile beside its drone views."""
    from skypart.worlds.sheet import write_sheet

    write_sheet(root, out, rows, start)
    typer.echo(f"wrote {out}")


_RESUMING = {"demo", "evaluate", "index", "train", "weather", "data fetch", "data split-sues", "world make"}
"""Verbs whose work is kept when they are stopped."""


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence and a non-zero exit."""
    try:
        app()
    except SkyPartError as error:
        error.__cause__ = error.__context__ = error.__traceback__ = None  # lets go of progress bars still drawn
        typer.echo(f"skypart: {error}", err=True)
        sys.exit(error.exit_code)
    except SystemExit as leaving:
        if leaving.code == 130:  # Ctrl-C
            resumes = not _RESUMING.isdisjoint((" ".join(sys.argv[1:2]), " ".join(sys.argv[1:3])))
            typer.echo(f"skypart: stopped{'; start the same command again to go on' if resumes else ''}", err=True)
        raise


if __name__ == "__main__":
    main()
