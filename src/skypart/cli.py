"""The command line: one function per command, no logic of its own. Commands import what they need when they run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from skypart.confine import skip_following_drivers
from skypart.errors import SkyPartError
from skypart.version import __version__

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
data_app = typer.Typer(no_args_is_help=True, help="Check and prepare benchmark data sets.")
world_app = typer.Typer(no_args_is_help=True, help="Render data sets in benchmark layout from procedural or real maps.")
app.add_typer(data_app, name="data")
app.add_typer(world_app, name="world")

# Arguments and options that several commands share.
_MODEL_HELP = "Model file, folder, hub OWNER/NAME, or `default`."
ModelArgument = Annotated[str, typer.Argument(help=_MODEL_HELP)]
ModelOption = Annotated[str, typer.Option(help=_MODEL_HELP)]
IndexModelOption = Annotated[str, typer.Option(help="Model, if it has moved since the index was built.")]
IndexArgument = Annotated[Path, typer.Argument(help="Index folder written by `skypart index`.")]
PhotosArgument = Annotated[list[Path], typer.Argument(help="Photos, or folders of photos.")]
SizeOption = Annotated[int | None, typer.Option(help="Model input size in pixels (default: the model's own).")]
BatchSizeOption = Annotated[int, typer.Option(help="Images per forward pass.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")]
NetworkOption = Annotated[bool, typer.Option(help="Allow maps that are read over the network.")]
WeatherSeedOption = Annotated[int, typer.Option(help="Random seed of the weather.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """SkyPart: find where a drone photo was taken on a satellite map."""
    if version:
        typer.echo(f"skypart {__version__}")
        raise typer.Exit


@app.command()
def doctor() -> None:
    """Print versions, hardware, folders searched for weights, and how to install what is missing."""
    from skypart.doctor import print_report, report

    print_report(report())


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Output folder.")] = Path("demo-out"),
    real: Annotated[
        Path | None, typer.Option(help="Run on this folder instead: a GeoTIFF, labelled photos and a video.")
    ] = None,
    model: ModelOption = "default",
    page: Annotated[
        bool | None, typer.Option(help="Open the web page at the end (default: if there is a display).")
    ] = None,
) -> None:
    """Index a generated town, locate photos, track a flight, and show the results on a map and a web page."""
    from skypart.demo import run_demo

    run_demo(output, real, model, page)


@app.command()
def new(
    backbone: Annotated[str, typer.Argument(help="Backbone name, hub OWNER/NAME, or a ViT's folder or file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Model file to write (.safetensors).")],
    size: Annotated[int, typer.Option(help="Input size in pixels.")] = 448,
    seed: Annotated[int, typer.Option(help="Random seed of the head.")] = 0,
) -> None:
    """Add an untrained SkyPart head to a pretrained backbone."""
    from skypart.model.embedder import new_model
    from skypart.model.storage import save_model

    save_model(new_model(backbone, size, seed), output)
    typer.echo(f"wrote {output}: an untrained head on {backbone}; train it with `skypart train`")


@app.command()
def embed(
    photos: PhotosArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write (.npz: paths, embeddings).")],
    model: ModelOption = "default",
    batch_size: BatchSizeOption = 16,
    size: SizeOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Embed photos: one float32 unit vector per photo."""
    from skypart.embedding import load
    from skypart.embedding.files import embed_files

    count = embed_files(load(model, device, size), photos, output, batch_size)
    typer.echo(f"wrote {output}: {count} embeddings")


@app.command()
def parts(
    photo: Annotated[Path, typer.Argument(help="Photo.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Image to write.")],
    model: ModelOption = "default",
    size: SizeOption = None,
) -> None:
    """Draw a photo beside its parts: one colour per prototype, with centroids and their graph."""
    from skypart.drawing.files import save_image
    from skypart.embedding import load
    from skypart.embedding.parts_figure import parts_figure
    from skypart.images.decode import read_rgb

    image = read_rgb(photo)
    save_image(parts_figure(image, load(model, size=size).explain(image), photo.name), output)
    typer.echo(f"wrote {output}")


@app.command()
def info(
    model: ModelArgument,
    size: SizeOption = None,
    json: JsonOption = False,
) -> None:
    """Print a model's parameters, multiply-adds (in every convention), recipe and provenance."""
    from skypart.model.report import describe_model, print_description

    print_description(describe_model(model, size), json)


@app.command()
def models(
    json: JsonOption = False,
) -> None:
    """List the shipped model, cached models, and the backbones known by name."""
    from skypart.model.catalogue import list_models, print_models

    print_models(list_models(), json)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="Recipe, e.g. recipes/sues200.toml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value, e.g. data.root=/data/SUES.")] = None,
    overfit: Annotated[bool, typer.Option("--overfit", help="Overfit a few locations, as a sanity check.")] = False,
) -> None:
    """Train a model from a recipe. The same command resumes an interrupted run."""
    from skypart.training.run import train_recipe

    summary, code = train_recipe(recipe, overrides or [], overfit)
    typer.echo(summary, nl=bool(summary))
    raise typer.Exit(code)


@app.command()
def evaluate(
    model: ModelArgument,
    data: Annotated[Path, typer.Argument(help="Data set folder; its format is detected.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Output folder for tables and figures.")] = None,
    gallery: Annotated[str, typer.Option(help="full, or masked as in some other papers.")] = "full",
    flip: Annotated[
        bool, typer.Option("--flip", help="Add the mirrored image's features, as in some other papers.")
    ] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw retrieval sheets, a histogram and an error map.")
    ] = False,
    weather: Annotated[str | None, typer.Option(help="Weather profile: paper or weatherprompt.")] = None,
    severity: Annotated[
        str | None, typer.Option(help="With --weather: severities to evaluate, e.g. 0.25,0.5,1.")
    ] = None,
    seed: WeatherSeedOption = 0,
    size: SizeOption = None,
    readout: Annotated[str | None, typer.Option(help="Ablation with the same weights: cls, part, no_graph.")] = None,
    batch_size: BatchSizeOption = 16,
    cache: Annotated[Path | None, typer.Option(help="Folder for cached embeddings.")] = None,
    device: DeviceOption = "cpu",
) -> None:
    """Run a data set's full protocol, on clean images or in ten weather conditions. Resumes if interrupted."""
    from skypart.evaluation.run import EvaluateOptions, evaluate_files

    options = EvaluateOptions(
        output, gallery, flip, figures, weather, severity, seed, size, readout, batch_size, cache, device
    )
    evaluate_files(model, data, options)


@app.command()
def weather(
    source: Annotated[Path, typer.Argument(help="Photo, or folder of photos.")],
    out: Annotated[Path | None, typer.Argument(help="Output folder, if SOURCE is a folder.")] = None,
    sheet: Annotated[
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
        if out is None or condition is None or sheet is not None:
            raise SkyPartError(
                f"{source}: a folder needs an output folder and --condition, and no sheet; see skypart weather --help"
            )
        done = corrupt_folder(source, out, condition, profile, seed, severity)
        typer.echo(f"{out}: {done.written} images written, {done.skipped} already there")
        return
    if sheet is None or out is not None or (condition, profile, severity) != (None, "paper", None):
        raise SkyPartError(
            f"{source}: a photo needs -o sheet.png, which shows all conditions of both profiles; an output folder, "
            "--condition, --profile and --severity are for folders of photos"
        )
    save_contact_sheet(source, sheet, seed)
    typer.echo(f"{sheet}: {source.name} in ten conditions, both profiles")


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
    out: Annotated[Path, typer.Option("-o", "--output", help="Parent folder; each data set gets its own.")] = Path(
        "data"
    ),
) -> None:
    """Download the public data that the default model was trained on. Resumes if interrupted."""
    from skypart.datasets.fetch import fetch, print_sets

    if name is None:
        print_sets()
    else:
        fetch(name, out, typer.echo)


@data_app.command("split-sues")
def data_split_sues(
    raw: Annotated[Path, typer.Argument(help="Raw SUES-200: drone_view_512/ and satellite-view/.")],
    out: Annotated[Path, typer.Argument(help="Output folder for the official split.")],
) -> None:
    """Create SUES-200's official Training/Testing folders, with links instead of copies."""
    from skypart.datasets.split_sues import split_sues

    typer.echo(f"{split_sues(raw, out):,} links under {out}")


@app.command()
def index(
    maps: Annotated[list[str], typer.Argument(help="GeoTIFF, image with world file, tile folder or archive, CSV.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Index folder to create or extend.")],
    model: ModelOption = "default",
    sizes: Annotated[str, typer.Option(help="Edge lengths of the views in metres, comma-separated.")] = "",
    overlap: Annotated[float | None, typer.Option(help="Overlap of neighbouring views, 0 to 1.")] = None,
    rotations: Annotated[int | None, typer.Option(help="Rotations that each view is embedded at.")] = None,
    size: SizeOption = None,
    network: NetworkOption = False,
    device: DeviceOption = "cpu",
) -> None:
    """Cut maps into views and embed them into an index. Resumes if interrupted."""
    from skypart.embedding import load
    from skypart.maps.build import build_index
    from skypart.maps.views import view_options

    options = view_options(sizes, overlap, rotations)
    added = build_index(maps, output, load(model, device, size), model, options, network)
    for name, views in added.items():
        typer.echo(f"indexed {name}: {views} views")
    if not added:
        typer.echo(f"{output} already contains these maps")


@app.command()
def maps(
    index: IndexArgument,
    verify: Annotated[bool, typer.Option("--verify", help="Check every file against its SHA-256.")] = False,
    remove: Annotated[str, typer.Option(metavar="NAME", help="Remove this map.")] = "",
) -> None:
    """List the maps of an index, verify its files, or remove a map."""
    from rich.console import Console

    from skypart.maps.index import MapIndex, maps_table, remove_map
    from skypart.maps.manifest import verify_index

    if remove:
        typer.echo(f"removed {remove}: {remove_map(index, remove)} views")
    opened = MapIndex(index)
    if verify:
        verify_index(index)
    Console().print(maps_table(opened))
    if verify:
        typer.echo("all files match their checksums")


@app.command()
def locate(
    index: IndexArgument,
    photos: PhotosArgument,
    near: Annotated[str, typer.Option(help="LAT,LON: search only around this point.")] = "",
    radius: Annotated[float | None, typer.Option(help="Search radius around --near, metres (default 1000).")] = None,
    heading: Annotated[float | None, typer.Option(help="Compass direction of the photos' upper edge, degrees.")] = None,
    altitude: Annotated[float | None, typer.Option(help="Height above ground, metres.")] = None,
    tilt: Annotated[
        float | None, typer.Option(help="Camera tilt below the horizon, degrees; 90 is straight down.")
    ] = None,
    fov: Annotated[float | None, typer.Option(help="Horizontal field of view, degrees.")] = None,
    no_exif: Annotated[bool, typer.Option("--no-exif", help="Ignore the photos' EXIF and XMP.")] = False,
    format: Annotated[
        str, typer.Option(help="table, json, geojson, csv, kml or gpx (default: from the suffix of -o, else table).")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to this file instead of the screen.")
    ] = None,
    model: IndexModelOption = "",
    network: NetworkOption = False,
    device: DeviceOption = "cpu",
) -> None:
    """Find where photos were taken, with a 95 % error radius (exit code 3 if any photo has no fix)."""
    from skypart.atomic import check_writable, write_text
    from skypart.bridge.formats import choose_format
    from skypart.position.photos import NO_FIX, locate_photos, open_locator, read_hints, read_prior

    chosen = choose_format(format, output)
    if output is not None:
        check_writable(output)
    hints = read_hints(heading, altitude, tilt, fov)
    prior = read_prior(near, radius)
    locator = open_locator(index, model, device, network=network)
    fixes = locate_photos(locator, photos, prior, hints, exif=not no_exif)
    text = chosen.fixes(fixes)
    if output is None:
        typer.echo(text)
    else:
        write_text(output, text)
    if not all(fix.found for fix in fixes):
        raise typer.Exit(NO_FIX)


@app.command()
def calibrate(
    index: IndexArgument,
    labelled: Annotated[
        Path, typer.Argument(help="CSV of photos with latitude and longitude, or a folder that has one.")
    ],
    outside: Annotated[list[Path] | None, typer.Option(help="Photos from outside the map; repeatable.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Figure to write.")] = Path("calibration.png"),
    model: IndexModelOption = "",
    network: NetworkOption = False,
) -> None:
    """Fit confidence and error radius on photos of known position and store them in the index."""
    from skypart.position.calibrate import run_calibration
    from skypart.position.photos import open_locator

    typer.echo(run_calibration(open_locator(index, model, network=network), labelled, outside or [], output))


@app.command()
def track(
    index: IndexArgument,
    flight: Annotated[Path, typer.Argument(help="Video, or folder of photos.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Track to write: .gpx, .geojson, .csv or .kml.")],
    rate: Annotated[float, typer.Option(help="Frames per second to use from a video.")] = 1.0,
    interval: Annotated[float, typer.Option(help="Seconds between photos that have no timestamp.")] = 1.0,
    max_speed: Annotated[float, typer.Option(help="Maximum speed of the drone, m/s.")] = 25.0,
    truth: Annotated[Path | None, typer.Option(help="CSV of true positions, to score the track.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Map image of fixes and path to write.")] = None,
    model: IndexModelOption = "",
    network: NetworkOption = False,
) -> None:
    """Track a flight: locate its frames and filter the fixes into one path."""
    from skypart.bridge.formats import TrackFile
    from skypart.position.flight import follow_flight
    from skypart.position.photos import open_locator
    from skypart.position.track import TrackOptions

    options = TrackOptions(max_speed=max_speed)
    locator = open_locator(index, model, network=network)
    track_file = TrackFile(output)
    result = follow_flight(
        locator, flight, track_file, options, rate_hz=rate, interval_s=interval, truth=truth, figure=picture
    )
    typer.echo(result.report())


@app.command()
def serve(
    index: IndexArgument,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.")] = 8000,
    api_key: Annotated[str, typer.Option(envvar="SKYPART_API_KEY", help="API key that requests must send.")] = "",
    examples: Annotated[Path | None, typer.Option(help="Folder of example photos for the page.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = False,
    model: IndexModelOption = "",
    network: NetworkOption = False,
) -> None:
    """Serve an index over HTTP: a JSON API and a web page."""
    from skypart.position.photos import open_locator
    from skypart.serve.options import ServeOptions
    from skypart.serve.server import run_server
    from skypart.serve.service import IndexService

    service = IndexService(open_locator(index, model, network=network), examples)
    run_server(service, ServeOptions(host=host, port=port, api_key=api_key or None), open_browser=browser)


@world_app.command("make")
def world_make(
    out: Annotated[Path, typer.Argument(help="Output folder of the data set.")],
    source: Annotated[
        list[str] | None, typer.Option("--from", help="`procedural`, or a raster file or folder; repeatable.")
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
    out: Annotated[Path, typer.Option("-o", "--out", help="Image to write.")] = Path("sheet.png"),
    rows: Annotated[int, typer.Option(help="Number of locations to show.")] = 8,
    start: Annotated[int, typer.Option(help="First location to show, counted from 0.")] = 0,
) -> None:
    """Draw a contact sheet: each location's satellite tile beside its drone views."""
    from skypart.worlds.sheet import write_sheet

    write_sheet(root, out, rows, start)
    typer.echo(f"wrote {out}")


_RESUMABLE = {"demo", "evaluate", "index", "train", "weather", "data fetch", "data split-sues", "world make"}
"""Commands that resume when they are run again."""


def main() -> None:
    """Run the command line. Bad input ends in a one-line error message and a non-zero exit code."""
    skip_following_drivers()
    try:
        app()
    except SkyPartError as error:
        error.__cause__ = error.__context__ = error.__traceback__ = None  # releases progress bars that are still drawn
        typer.echo(f"skypart: {error}", err=True)
        sys.exit(error.exit_code)
    except SystemExit as exiting:
        if exiting.code == 130:  # Ctrl-C
            resumes = not _RESUMABLE.isdisjoint((" ".join(sys.argv[1:2]), " ".join(sys.argv[1:3])))
            typer.echo(f"skypart: stopped{'; start the same command again to resume' if resumes else ''}", err=True)
        raise


if __name__ == "__main__":
    main()
