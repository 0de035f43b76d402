"""The command line: one function per command, no logic of its own. Commands import what they need when they run."""

import io
import logging
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skypart.confine import skip_following_drivers
from skypart.errors import SkyPartError
from skypart.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Buffer
SETTINGS = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SKYPART"}
"""`-h` works everywhere, and SKYPART_<COMMAND>_<OPTION> sets the default of any option."""

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, context_settings=SETTINGS)
data_app = typer.Typer(no_args_is_help=True, help="Check and prepare benchmark data sets.")
world_app = typer.Typer(no_args_is_help=True, help="Render data sets in benchmark layout from procedural or real maps.")
app.add_typer(data_app, name="data")
app.add_typer(world_app, name="world")

# Arguments and options that several commands share.
_MODEL_HELP = "Model file, folder, hub OWNER/NAME, or `default`."
ModelArgument = Annotated[str, typer.Argument(help=_MODEL_HELP)]
ModelOption = Annotated[str, typer.Option(envvar="SKYPART_MODEL", help=_MODEL_HELP)]
IndexModelOption = Annotated[str, typer.Option(help="Model, if it has moved since the index was built.")]
IndexArgument = Annotated[Path, typer.Argument(help="Index folder written by `skypart index`.")]
PhotosArgument = Annotated[list[Path], typer.Argument(help="Photos, or folders of photos.")]
SizeOption = Annotated[int | None, typer.Option(help="Model input size in pixels (default: the model's own).")]
BatchSizeOption = Annotated[int, typer.Option(help="Images per forward pass.")]
DeviceOption = Annotated[str, typer.Option(envvar="SKYPART_DEVICE", help="cpu, cuda, cuda:1, mps.")]
NearOption = Annotated[str, typer.Option(help="LAT,LON: search only around this point.")]
RadiusOption = Annotated[float | None, typer.Option(help="Search radius around --near, metres (default 1000).")]
HeadingOption = Annotated[float | None, typer.Option(help="Compass direction of the photos' upper edge, degrees.")]
AltitudeOption = Annotated[float | None, typer.Option(help="Height above ground, metres.")]
TiltOption = Annotated[float | None, typer.Option(help="Camera tilt below the horizon, degrees; 90 is straight down.")]
FovOption = Annotated[float | None, typer.Option(help="Horizontal field of view, degrees.")]
NetworkOption = Annotated[bool, typer.Option(help="Allow maps and views that are read over the network.")]
StoreOption = Annotated[str, typer.Option(help="Address of a copy of the index's views, such as milvus:URI.")]
WeatherSeedOption = Annotated[int, typer.Option(help="Random seed of the weather.")]
OffsetOption = Annotated[str, typer.Option(help="Seconds that the flight data's clock is ahead of the video, or auto.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback(invoke_without_command=True)
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
    device: DeviceOption = "cpu",
    page: Annotated[
        bool | None, typer.Option(help="Open the web page at the end (default: if there is a display).")
    ] = None,
) -> None:
    """Index a generated town, locate photos, track a flight, and show the results on a map and a web page."""
    from skypart.demo import run_demo

    run_demo(output, real, model, page, device)


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
    device: DeviceOption = "cpu",
) -> None:
    """Draw a photo beside its parts: one colour per prototype, with centroids and their graph."""
    from skypart.drawing.files import save_image
    from skypart.embedding import load
    from skypart.embedding.parts_figure import parts_figure
    from skypart.images.decode import read_rgb

    image = read_rgb(photo)
    save_image(parts_figure(image, load(model, device, size).explain(image), photo.name), output)
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
def export(
    model: ModelArgument,
    to: Annotated[str, typer.Option(help="onnx or openvino.")] = "onnx",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write (default: named after the model)."),
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32, fp16 or int8.")] = "fp32",
    size: SizeOption = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(help="Photos or folders to calibrate int8 on; repeatable (default: a rendered world)."),
    ] = None,
    calibration: Annotated[int, typer.Option(help="Images to calibrate int8 on.")] = 100,
    parity: Annotated[int, typer.Option(help="Photos to compare with PyTorch on.")] = 200,
) -> None:
    """Export a model to ONNX or OpenVINO. An export that differs from PyTorch is not kept (exit code 2)."""
    from skypart.export.run import ExportOptions, default_output, export_model

    options = ExportOptions(to, precision, size, tuple(images or ()), calibration, parity)
    target = output or default_output(model, options)
    found = export_model(model, target, options)
    typer.echo(f"wrote {target}: {found.summary()}")


@app.command()
def bench(
    model: Annotated[str, typer.Argument(help=_MODEL_HELP)] = "default",
    exported: Annotated[list[Path] | None, typer.Argument(help="Exports of it, .onnx or .xml.")] = None,
    sizes: Annotated[str, typer.Option(help="Input sizes, comma-separated (default: those of the models).")] = "",
    batches: Annotated[str, typer.Option(help="Batch sizes, comma-separated.")] = "1,8",
    rounds: Annotated[int, typer.Option(help="Measurements of each.")] = 10,
    compile: Annotated[bool, typer.Option("--compile", help="Also measure torch.compile.")] = False,
) -> None:
    """Measure how fast a model runs here, in PyTorch and as exported, in turns."""
    from rich.console import Console

    from skypart.export.bench import bench_tables, read_numbers, run_bench

    result = run_bench(model, exported or [], read_numbers(sizes), read_numbers(batches), rounds, compile)
    for table in bench_tables(result):
        Console().print(table)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="Recipe: a file, or one of ours by name, e.g. sues200.")],
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
def experiment(
    name: Annotated[str, typer.Argument(help="A comparison, such as peers or ablation, or a plan file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for trainings, tables and figures.")],
    data: Annotated[Path | None, typer.Option(help="Data set; without it, preset small renders its own.")] = None,
    test: Annotated[Path | None, typer.Option(help="Data set that a transfer is tested on.")] = None,
    preset: Annotated[str, typer.Option(help="small (two cores), or paper (the published budget).")] = "small",
    backbone: Annotated[list[str] | None, typer.Option(help="Backbones to compare; may be repeated.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seeds instead of the preset's; may be repeated.")] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="section.key=value for every training.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its estimated time only.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
) -> None:
    """Run one comparison of the paper: train, evaluate, compare, and write tables and figures."""
    from skypart.experiments.command import run_command
    from skypart.experiments.run import Options

    run_command(
        name,
        Options(
            out=output,
            data=data,
            test=test,
            preset=preset,
            backbones=tuple(backbone or ()),
            seeds=tuple(seed or ()),
            device=device,
            dry_run=dry_run,
            overrides=tuple(override or ()),
        ),
    )


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="Folders of `skypart experiment` or `skypart evaluate`.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML page to write.")] = Path("report.html"),
) -> None:
    """Write one static HTML page of any set of results: sortable tables, figures, recipes and their differences."""
    from skypart.experiments.report import write_report

    write_report(results, output)
    typer.echo(f"wrote {output}")


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
    store: Annotated[str, typer.Option(help="Where the views go: embedded: (default) or milvus:URI.")] = "",
    engine: Annotated[str, typer.Option(help="What embeds the views: local or ray.")] = "local",
    address: Annotated[str, typer.Option(help="Ray cluster that this machine belongs to: HOST:6379 or auto.")] = "",
    device: DeviceOption = "cpu",
    tokens: Annotated[
        bool, typer.Option(help="Keep patch tokens, 25 KB a view with the default model: locate is faster with them.")
    ] = True,
) -> None:
    """Cut maps into views and embed them into an index. Resumes if interrupted."""
    from skypart.embedding import load
    from skypart.maps.build import build_index
    from skypart.maps.engines import open_engine
    from skypart.maps.store import absolute_address
    from skypart.maps.view_tokens import bytes_per_view
    from skypart.maps.views import view_options

    options = view_options(sizes, overlap, rotations)
    store_address = absolute_address(store) if store else None
    with closing(open_engine(engine, address)) as opened:
        embedder = load(model, "cpu" if engine != "local" else device, size)
        added = build_index(maps, output, embedder, model, options, network, store_address, opened, device, tokens)
    for name, views in added.items():
        typer.echo(f"indexed {name}: {views} views")
    if added and tokens:
        typer.echo(f"patch tokens: {bytes_per_view(output):,.0f} bytes a view; --no-tokens leaves them out")
    if not added:
        typer.echo(f"{output} already contains these maps")


@app.command()
def maps(
    index: IndexArgument,
    verify: Annotated[bool, typer.Option("--verify", help="Check every file against its SHA-256.")] = False,
    remove: Annotated[str, typer.Option(metavar="NAME", help="Remove this map.")] = "",
    move_to: Annotated[str, typer.Option(metavar="ADDRESS", help="Copy the views to this store and use it.")] = "",
    network: NetworkOption = False,
) -> None:
    """List the maps of an index, verify its files, remove a map, or move the views to another store."""
    from rich.console import Console

    from skypart.maps.index import MapIndex, maps_table, move_store, remove_map
    from skypart.maps.manifest import verify_index

    if remove:
        typer.echo(f"removed {remove}: {remove_map(index, remove)} views")
    if move_to:
        typer.echo(f"copied {move_store(index, move_to)} views")
    opened = MapIndex(index, network=network)
    if verify:
        verify_index(index)
    Console().print(maps_table(opened))
    if verify:
        typer.echo("all files match their checksums")


@app.command()
def locate(
    index: IndexArgument,
    photos: PhotosArgument,
    near: NearOption = "",
    radius: RadiusOption = None,
    heading: HeadingOption = None,
    altitude: AltitudeOption = None,
    tilt: TiltOption = None,
    fov: FovOption = None,
    no_exif: Annotated[bool, typer.Option("--no-exif", help="Ignore the photos' EXIF and XMP.")] = False,
    format: Annotated[
        str,
        typer.Option(help="table, json, geojson, csv, kml, gpx or geo (default: from the suffix of -o, else table)."),
    ] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to this file instead of the screen.")
    ] = None,
    geotiff: Annotated[
        Path | None, typer.Option(help="Folder for the photos warped onto the ground, as GeoTIFF.")
    ] = None,
    model: IndexModelOption = "",
    network: NetworkOption = False,
    store: StoreOption = "",
    device: DeviceOption = "cpu",
) -> None:
    """Find where photos were taken, with a 95 % error radius (exit code 3 if any photo has no fix)."""
    from skypart.atomic import check_writable, write_text
    from skypart.bridge.formats import choose_format
    from skypart.position.photos import NO_FIX, check_prior_order, locate_photos, open_locator, read_hints, read_prior

    chosen = choose_format(format, output)
    if output is not None:
        check_writable(output)
    hints = read_hints(heading, altitude, tilt, fov)
    prior = read_prior(near, radius)
    locator = open_locator(index, model, device, network=network, store=store)
    check_prior_order(prior, locator.index.bounds)
    fixes = locate_photos(locator, photos, prior, hints, exif=not no_exif)
    text = chosen.fixes(fixes)
    if output is None:
        typer.echo(text)
    else:
        write_text(output, text)
    if geotiff is not None:
        from skypart.bridge.geotiff import write_geotiffs

        typer.echo(f"{geotiff}: {write_geotiffs(fixes, geotiff)} photos as GeoTIFF", err=True)
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
    device: DeviceOption = "cpu",
    store: StoreOption = "",
) -> None:
    """Fit confidence and error radius on photos of known position and store them in the index."""
    from skypart.position.calibrate import run_calibration
    from skypart.position.photos import open_locator

    locator = open_locator(index, model, device, network=network, store=store)
    typer.echo(run_calibration(locator, labelled, outside or [], output))


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
    near: NearOption = "",
    radius: RadiusOption = None,
    heading: HeadingOption = None,
    altitude: AltitudeOption = None,
    tilt: TiltOption = None,
    fov: FovOption = None,
    telemetry: Annotated[Path | None, typer.Option(help="Flight data: DJI .srt, .csv or .tlog.")] = None,
    offset: OffsetOption = "0",
    model: IndexModelOption = "",
    network: NetworkOption = False,
    device: DeviceOption = "cpu",
    store: StoreOption = "",
) -> None:
    """Track a flight: locate its frames and filter the fixes into one path."""
    from skypart.bridge.formats import TrackFile
    from skypart.position.flight import follow_flight
    from skypart.position.fly import join_clocks
    from skypart.position.photos import open_locator, read_hints, read_prior
    from skypart.position.track import TrackOptions
    from skypart.telemetry.source import read_telemetry

    options = TrackOptions(max_speed=max_speed)
    hints, prior = read_hints(heading, altitude, tilt, fov), read_prior(near, radius)
    data = None
    if telemetry is not None:
        data = read_telemetry(telemetry, fixed_tilt=tilt)
        typer.echo(f"flight data of {data.summary()}; clock {join_clocks(flight, data, offset):+.2f} s")
    locator = open_locator(index, model, device, network=network, store=store)
    track_file = TrackFile(output)
    result = follow_flight(
        locator,
        flight,
        track_file,
        options,
        rate_hz=rate,
        interval_s=interval,
        truth=truth,
        figure=picture,
        prior=prior,
        telemetry=data,
        hints=hints,
    )
    typer.echo(result.report())


@app.command()
def fly(
    index: IndexArgument,
    video: Annotated[str, typer.Option(help="Camera number, rtsp://, udp:// or http:// address, or a file.")],
    telemetry: Annotated[
        str, typer.Option(help="Flight data: udpin:0.0.0.0:14550, /dev/ttyACM0,57600, .srt, .csv or .tlog.")
    ] = "",
    out: Annotated[
        list[str] | None,
        typer.Option(help="-, FILE.jsonl, FILE.gpx, ws:PORT, mavlink:ADDRESS, nmea:pty, nmea:tcp:PORT; repeatable."),
    ] = None,
    arm_output: Annotated[
        bool, typer.Option("--arm-output", help="Really send to mavlink: and nmea:; else print what would be sent.")
    ] = False,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="Play a file at its own speed, dropping frames.")
    ] = False,
    rate: Annotated[float, typer.Option(help="Frames located per second, at most.")] = 2.0,
    out_rate: Annotated[float, typer.Option(help="Positions per second to send.")] = 5.0,
    max_speed: Annotated[float, typer.Option(help="Maximum speed of the drone, m/s.")] = 25.0,
    offset: OffsetOption = "0",
    latency: Annotated[float, typer.Option(help="Seconds from exposure until a frame of a stream arrives.")] = 0.0,
    fov: FovOption = None,
    tilt: TiltOption = None,
    altitude: Annotated[float | None, typer.Option(help="Height above ground, metres, if constant.")] = None,
    heading: Annotated[float | None, typer.Option(help="Compass direction of the upper edge, if constant.")] = None,
    follow: Annotated[str, typer.Option(help="Whose position: auto, ground (at the photo's centre), drone.")] = "auto",
    near_gps: Annotated[
        bool, typer.Option("--near-gps", help="Search around the GPS position of the flight data.")
    ] = False,
    message: Annotated[
        list[str] | None,
        typer.Option(help="gps_input, global_position_sensor, external_estimate or odometry; repeatable."),
    ] = None,
    origin: Annotated[str, typer.Option(help="LAT,LON: origin of ODOMETRY's local frame.")] = "",
    silent_when_lost: Annotated[
        bool, typer.Option("--silent-when-lost", help="Send nothing while lost, instead of GPS_INPUT without a fix.")
    ] = False,
    dem: Annotated[Path | None, typer.Option(help="GeoTIFF of ground heights, for the drone's position.")] = None,
    takeoff: Annotated[str, typer.Option(help="LAT,LON of take-off, which heights are counted from (--dem).")] = "",
    stop_after: Annotated[float, typer.Option(help="Seconds of loss after which the output stops.")] = 30.0,
    page: Annotated[int | None, typer.Option(help="Port of a live page at /fly; 0 picks a free one.")] = None,
    model: IndexModelOption = "",
    network: NetworkOption = False,
    device: DeviceOption = "cpu",
) -> None:
    """Follow a flight live: video and flight data in, positions out. Ctrl-C ends it and leaves whole files."""
    from skypart.serve.fly_command import FlyArguments, run_fly

    run_fly(
        FlyArguments(
            index=index,
            video=video,
            telemetry=telemetry,
            out=tuple(out or ()),
            armed=arm_output,
            realtime=realtime,
            rate_hz=rate,
            out_hz=out_rate,
            max_speed=max_speed,
            offset=offset,
            latency_s=latency,
            fov=fov,
            tilt=tilt,
            altitude=altitude,
            heading=heading,
            follow=follow,
            near_gps=near_gps,
            messages=tuple(message or ("gps_input",)),
            origin=origin,
            silent_when_lost=silent_when_lost,
            dem=dem,
            takeoff=takeoff,
            stop_after_s=stop_after,
            page=page,
            model=model,
            network=network,
            device=device,
        )
    )


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
    device: DeviceOption = "cpu",
    store: StoreOption = "",
) -> None:
    """Serve an index over HTTP: a JSON API and a web page."""
    from skypart.position.photos import open_locator
    from skypart.serve.memory import bound_heaps
    from skypart.serve.options import ServeOptions
    from skypart.serve.server import run_server
    from skypart.serve.service import IndexService

    bound_heaps()
    service = IndexService(open_locator(index, model, device, network=network, store=store), examples)
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


_RESUMABLE = {
    "demo",
    "evaluate",
    "experiment",
    "index",
    "train",
    "weather",
    "data fetch",
    "data split-sues",
    "world make",
}
"""Commands that resume when they are run again."""


class _PipeOutput(io.FileIO):
    """Standard output that ignores a closed pipe, so that `skypart evaluate ... | head` still finishes its work."""

    def write(self, data: "Buffer") -> int:
        """Write, or drop what nobody reads any more."""
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def _tolerate_closed_pipe() -> None:
    """Replace the process's standard output by one that ignores a closed pipe; leave replaced ones as they are."""
    output = sys.stdout
    if output is not None and output is sys.__stdout__ and isinstance(output, io.TextIOWrapper):
        raw = _PipeOutput(output.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), output.encoding, output.errors, line_buffering=output.line_buffering
        )


_GLOBAL_FLAGS = {"-v", "--verbose", "-q", "--quiet"}


def _flags_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with -v and -q first, so that they work after the command, too. Nothing after `--` is moved."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flags = [each for each in arguments[:end] if each in _GLOBAL_FLAGS]
    return [*flags, *(each for each in arguments[:end] if each not in _GLOBAL_FLAGS), *arguments[end:]]


def main() -> None:
    """Run the command line. Bad input ends in a one-line error message and a non-zero exit code."""
    skip_following_drivers()
    _tolerate_closed_pipe()
    try:
        app(_flags_first(sys.argv[1:]))
    except SkyPartError as error:
        error.__cause__ = error.__context__ = error.__traceback__ = None  # releases progress bars that are still drawn
        typer.echo(f"skypart: {error}", err=True)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        from skypart.embedding.runtimes import TORCH_PACKAGES, install_torch

        if error.name not in TORCH_PACKAGES:
            raise
        extra = next((each for each in ("train", "export") if each in sys.argv[1:]), "torch")
        typer.echo(f"skypart: this command needs PyTorch; {install_torch(extra)}", err=True)
        sys.exit(SkyPartError.exit_code)
    except OSError as error:
        if error.filename is None:  # a defect: what failed should have been named
            raise
        problem = f"{error.filename}: {error.strerror or error}; fix its permissions, free disk space, or close files"
        typer.echo(f"skypart: {problem}", err=True)
        sys.exit(SkyPartError.exit_code)
    except SystemExit as exiting:
        if exiting.code == 130:  # Ctrl-C
            words = [each for each in sys.argv[1:] if each not in _GLOBAL_FLAGS]
            resumes = not _RESUMABLE.isdisjoint((" ".join(words[:1]), " ".join(words[:2])))
            typer.echo(f"skypart: stopped{'; start the same command again to resume' if resumes else ''}", err=True)
        raise


if __name__ == "__main__":
    main()
