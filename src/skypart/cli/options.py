"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

MODEL_HELP = "Model file, folder, hub OWNER/NAME, or `default`."
ModelArgument = Annotated[str, typer.Argument(help=MODEL_HELP)]
ModelOption = Annotated[str, typer.Option(envvar="SKYPART_MODEL", help=MODEL_HELP)]
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
