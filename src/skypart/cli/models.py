"""Commands on models and their embeddings: make, describe, export, measure, embed, draw parts."""

from pathlib import Path
from typing import Annotated

import typer

from skypart.cli.options import (
    MODEL_HELP,
    BatchSizeOption,
    DeviceOption,
    JsonOption,
    ModelArgument,
    ModelOption,
    PhotosArgument,
    SizeOption,
)


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


def info(
    model: ModelArgument,
    size: SizeOption = None,
    json: JsonOption = False,
) -> None:
    """Print a model's parameters, multiply-adds (in every convention), recipe and provenance."""
    from skypart.model.report import describe_model, print_description

    print_description(describe_model(model, size), json)


def models(
    json: JsonOption = False,
) -> None:
    """List the shipped model, cached models, and the backbones known by name."""
    from skypart.model.catalogue import list_models, print_models

    print_models(list_models(), json)


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


def bench(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)] = "default",
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
