"""`skypart evaluate`: embed the images, compute the metrics, write tables and draw figures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import get_args

from rich.console import Console

from skypart.datasets import open_dataset
from skypart.datasets.records import Dataset
from skypart.embedding import Embedder, load
from skypart.errors import SkyPartError
from skypart.evaluation.cache import EmbeddingCache, default_folder
from skypart.evaluation.embedding import ImageSource
from skypart.evaluation.protocol import EvaluationResult, Protocol, check_splits, embed_dataset, evaluate
from skypart.evaluation.published import published_rows
from skypart.evaluation.report import detail_table, main_table, write_json, write_result, write_tables
from skypart.evaluation.scores import GalleryMode
from skypart.evaluation.tables import print_table, terminal
from skypart.evaluation.weather import WeatherResult, evaluate_weather, weather_table


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of `skypart evaluate`, as given on the command line."""

    output: Path | None = None
    gallery: str = "full"
    flip: bool = False
    figures: bool = False
    weather: str | None = None
    severity: str | None = None
    seed: int = 0
    size: int | None = None
    readout: str | None = None
    batch_size: int = 16
    cache: Path | None = None
    device: str = "cpu"


def evaluate_files(model: str, data: Path, options: EvaluateOptions) -> None:
    """Evaluate `model` (a file or a name) on the data set in `data`."""
    if options.gallery not in get_args(GalleryMode):
        raise SkyPartError(f"--gallery {options.gallery}: choose full or masked")
    if options.severity is not None and options.weather is None:
        raise SkyPartError("--severity needs --weather paper or --weather weatherprompt")
    if options.figures and options.weather is not None:
        raise SkyPartError("--figures are drawn from clean images; leave --weather out, it draws its own figures")
    severities = _parse_severities(options.severity)
    dataset = open_dataset(data)
    check_splits(dataset)
    embedder = load(model, options.device, options.size, options.readout)
    name = _model_name(model) + ("" if options.readout in (None, "full") else f"-{options.readout}")
    out = options.output or _default_output(name, dataset, options, embedder.digest)
    gallery: GalleryMode = "masked" if options.gallery == "masked" else "full"
    source = open_source(embedder, options.cache, options.batch_size)
    with source.cache:
        if options.weather is None:
            run_evaluation(source, dataset, out, name, gallery, options.flip, options.figures)
        else:
            protocol = Protocol(
                embedder.size,
                embedder.interpolation,
                gallery,
                options.flip,
                options.weather,
                options.seed,
                tuple(dataset.notes),
            )
            run_weather(source, dataset, out, name, protocol, severities)


def _model_name(model: str) -> str:
    """The model's name in tables: its file name, after the folder name if all runs use the same file name."""
    path = Path(model)
    return f"{path.resolve().parent.name}-{path.stem}" if path.stem in ("best", "model") else path.stem


def _default_output(model: str, dataset: Dataset, options: EvaluateOptions, digest: str) -> Path:
    """A folder name with every option that changes the numbers.

    If that folder has results of another model or data set with the same name, a hash is appended.
    """
    words = [model, dataset.kind, dataset.root.resolve().name]
    words += [options.gallery] if options.gallery != "full" else []
    words += ["flip"] if options.flip else []
    words += [f"{options.size}px"] if options.size is not None else []
    words += [f"weather-{options.weather}"] if options.weather is not None else []
    words += [f"seed-{options.seed}"] if options.weather is not None and options.seed else []
    words += [f"severity-{options.severity.replace(',', '-')}"] if options.severity is not None else []
    out = Path("runs/evaluation") / "-".join(words).replace(" ", "-")
    root = str(dataset.root.resolve())
    for file in (out / "result.json", out / "weather.json"):
        if file.is_file() and _read_origin(file) != (digest, root):
            suffix = blake2b(f"{digest}|{root}".encode(), digest_size=4).hexdigest()
            return out.with_name(f"{out.name}-{suffix}")
    return out


def _read_origin(result: Path) -> tuple[str, str]:
    """The model's digest and the data set's folder in a result file; empty strings if it cannot be read."""
    try:
        content = json.loads(result.read_text(encoding="utf-8"))
        return str(content["digest"]), str(content["root"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""


def _parse_severities(text: str | None) -> list[float]:
    try:
        values = [] if text is None else [float(word) for word in text.split(",")]
    except ValueError:
        values = [-1.0]
    if any(not 0 <= value <= 1 for value in values):
        raise SkyPartError(f"--severity {text}: give numbers from 0 to 1, separated by commas, such as 0.25,0.5,1")
    return sorted(values)


def open_source(embedder: Embedder, cache: Path | None = None, batch_size: int = 16) -> ImageSource:
    """An image source that caches embeddings in `cache`, or in the user's cache folder."""
    if batch_size < 1:
        raise SkyPartError(f"--batch-size {batch_size} must be at least 1")
    return ImageSource(embedder, EmbeddingCache(cache or default_folder(), embedder.digest, embedder.dim), batch_size)


def run_evaluation(
    source: ImageSource,
    dataset: Dataset,
    out: Path,
    model: str,
    gallery: GalleryMode = "full",
    flip: bool = False,
    figures: bool = False,
    console: Console | None = None,
) -> EvaluationResult:
    """Evaluate on clean images, print the tables, write them (and figures) to `out`."""
    embedder = source.embedder
    protocol = Protocol(embedder.size, embedder.interpolation, gallery, flip, notes=tuple(dataset.notes))
    vectors = embed_dataset(dataset, source, flip=flip)
    result = evaluate(dataset, vectors, protocol, model, embedder.digest, embedder.facts)
    write_result(out, result)
    console = console or terminal()
    print_table(console, detail_table(result))
    print_table(console, main_table(result))
    if figures:
        from skypart.evaluation.figures import draw_figures

        draw_figures(out, dataset, vectors, result, embedder)
    console.print(source.summary, soft_wrap=True, markup=False)
    console.print(
        f"wrote {out}/: result.json, table and details as .csv .md .tex" + (", figures/" if figures else ""),
        soft_wrap=True,
        markup=False,
    )
    return result


def run_weather(
    source: ImageSource,
    dataset: Dataset,
    out: Path,
    model: str,
    protocol: Protocol,
    severities: Sequence[float] = (),
    console: Console | None = None,
) -> WeatherResult:
    """Evaluate under all ten conditions, print one table per direction, write tables and figures to `out`."""
    from skypart.evaluation.weather_figures import draw_weather_figures  # imports matplotlib

    result = evaluate_weather(source, dataset, model, protocol, severities)
    write_json(out / "weather.json", result.as_json(), published_rows(dataset.kind, "weather"))
    console = console or terminal()
    for direction in result.directions:
        table = weather_table(result, direction)
        write_tables(out, f"weather-{direction}", table)
        print_table(console, table)
    draw_weather_figures(out / "figures", result)
    console.print(source.summary, soft_wrap=True, markup=False)
    console.print(f"wrote {out}/: weather.json, weather-*.csv .md .tex, figures/", soft_wrap=True, markup=False)
    return result
