"""Commands that index maps, and find photos and flights on them."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from skypart.cli.options import (
    AltitudeOption,
    DeviceOption,
    FovOption,
    HeadingOption,
    IndexArgument,
    IndexModelOption,
    ModelOption,
    NearOption,
    NetworkOption,
    OffsetOption,
    PhotosArgument,
    RadiusOption,
    SizeOption,
    StoreOption,
    TiltOption,
)


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
        bool, typer.Option(help="Keep patch tokens (25 KB per view with the default model), which make locate faster.")
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
        typer.echo(f"patch tokens: {bytes_per_view(output):,.0f} bytes per view; --no-tokens omits them")
    if not added:
        typer.echo(f"{output} already contains these maps")


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
