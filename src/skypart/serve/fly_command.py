"""`skypart fly`: open the index, the flight data and the sinks, then follow the flight until it ends or Ctrl-C."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skypart.bridge.sinks import AUTOPILOT, open_sink
from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.fly import Follow, join_clocks, locate_with, offset_seconds, open_tracker
from skypart.position.frames import Frame
from skypart.position.live import FlightEnd, FlyOptions, Sink, flight_clock, fly
from skypart.position.live_video import is_stream
from skypart.position.photos import open_locator, read_hints
from skypart.position.terrain import Terrain, parse_place
from skypart.progress import console
from skypart.serve.fly_board import FlyBoard
from skypart.serve.server import serve_board
from skypart.serve.service import IndexService
from skypart.signals import handle_signals
from skypart.telemetry.record import Telemetry
from skypart.telemetry.source import captions_beside, is_live, open_telemetry

_FOLLOW: dict[str, Follow] = {"auto": "auto", "ground": "ground", "drone": "drone"}


@dataclass(frozen=True, kw_only=True)
class FlyArguments:
    """The options of `skypart fly`, as on the command line."""

    index: Path
    video: str
    telemetry: str = ""
    out: tuple[str, ...] = ()
    armed: bool = False
    realtime: bool = False
    rate_hz: float = 2.0
    out_hz: float = 5.0
    max_speed: float = 25.0
    offset: str = "0"
    latency_s: float = 0.0
    fov: float | None = None
    tilt: float | None = None
    altitude: float | None = None
    heading: float | None = None
    follow: str = "auto"
    near_gps: bool = False
    messages: tuple[str, ...] = ("gps_input",)
    origin: str = ""
    silent_when_lost: bool = False
    dem: Path | None = None
    takeoff: str = ""
    stop_after_s: float = 30.0
    page: int | None = None
    model: str = ""
    network: bool = False
    device: str = "cpu"


def run_fly(arguments: FlyArguments) -> FlightEnd:
    """Follow a flight; prints a summary at its end."""
    if arguments.follow not in _FOLLOW:
        raise SkyPartError(f"--follow {arguments.follow}: choose auto, ground or drone")
    if arguments.takeoff and arguments.dem is None:
        raise SkyPartError("--takeoff needs --dem, the heights that it is looked up in")
    stop = threading.Event()
    began = time.monotonic()
    terrain = None if arguments.dem is None else Terrain.read(arguments.dem)
    takeoff = parse_place(arguments.takeoff, "--takeoff") if arguments.takeoff else None
    options = FlyOptions(
        rate_hz=arguments.rate_hz,
        out_hz=arguments.out_hz,
        stop_after_s=arguments.stop_after_s,
        near_gps=arguments.near_gps,
        realtime=arguments.realtime,
        latency_s=arguments.latency_s,
        hints=read_hints(arguments.heading, arguments.altitude, arguments.tilt, arguments.fov),
    )
    locator = open_locator(arguments.index, arguments.model, arguments.device, network=arguments.network)
    clock = flight_clock()
    telemetry = _open_telemetry(arguments, clock)
    sinks: list[Sink] = []
    try:
        tracker = open_tracker(
            locator, options, telemetry=telemetry, follow=_FOLLOW[arguments.follow], max_speed=arguments.max_speed
        )
        if any(name.startswith(AUTOPILOT) for name in arguments.out) and tracker.filter.options.follow != "drone":
            raise SkyPartError(
                "an autopilot needs the drone's own position: give --tilt 90 and --fov for a camera that looks down, "
                "or flight data with the camera's tilt (--telemetry)"
            )
        for name in arguments.out or ("-",):
            sinks.append(_open_sink(name, arguments))
        locate = locate_with(locator, terrain, takeoff, tracker=tracker)
        if arguments.page is not None:
            board = FlyBoard()
            sinks.append(board)
            url = serve_board(board, IndexService(locator), arguments.page)
            _say(f"live page at {url}")
            inner = locate

            def locate(frame: Frame, hints: Hints, prior: Prior | None) -> Fix:
                fix = inner(frame, hints, prior)
                board.show_frame(frame, fix)
                return fix

        _say(f"ready after {time.monotonic() - began:.1f} s; following the {tracker.filter.options.follow}")
        with handle_signals(lambda *_: stop.set(), signal.SIGINT, signal.SIGTERM):
            end = fly(arguments.video, tracker, locate, sinks, stop=stop, clock=clock)
    except BaseException:
        for sink in sinks:
            with contextlib.suppress(SkyPartError, OSError):  # what ended the flight is told instead
                sink.close()
        raise
    finally:
        if telemetry is not None:
            telemetry.close()
    _say(end.summary())
    if telemetry is not None:
        _say(f"flight data of {telemetry.summary()}")
    return end


def _open_telemetry(arguments: FlyArguments, clock: Callable[[], float]) -> Telemetry | None:
    name, video = arguments.telemetry, Path(arguments.video)
    if not name and not is_stream(arguments.video):
        beside = captions_beside(video)
        name = str(beside) if beside is not None else ""
    if not name:
        if arguments.near_gps:
            raise SkyPartError("--near-gps needs flight data; give them with --telemetry")
        return None
    if is_live(name) or is_stream(arguments.video):
        offset_s = offset_seconds(arguments.offset)
        telemetry = open_telemetry(name, clock, fixed_tilt=arguments.tilt)
        telemetry.offset_s = offset_s
        return telemetry
    telemetry = open_telemetry(name, clock, fixed_tilt=arguments.tilt)
    _say(f"flight data of {telemetry.summary()}; clock {join_clocks(video, telemetry, arguments.offset):+.2f} s")
    return telemetry


def _open_sink(name: str, arguments: FlyArguments) -> Sink:
    origin = None
    if arguments.origin:
        place = parse_place(arguments.origin, "--origin")
        origin = LocalFrame(latitude=place.latitude, longitude=place.longitude)
    return open_sink(
        name,
        armed=arguments.armed,
        say=_say,
        rate_hz=arguments.out_hz,
        messages=arguments.messages,
        origin=origin,
        declare_no_fix=not arguments.silent_when_lost,
    )


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
