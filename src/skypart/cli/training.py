"""Commands that train and evaluate models and compare experiments."""

from pathlib import Path
from typing import Annotated

import typer

from skypart.cli.options import BatchSizeOption, DeviceOption, ModelArgument, SizeOption, WeatherSeedOption


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


def experiment(
    name: Annotated[str, typer.Argument(help="A comparison, such as peers or ablation, or a plan file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for trainings, tables and figures.")],
    data: Annotated[Path | None, typer.Option(help="Data set; without it, preset small renders its own.")] = None,
    test: Annotated[Path | None, typer.Option(help="Data set that a transfer is tested on.")] = None,
    preset: Annotated[str, typer.Option(help="small (two cores), or paper (the published budget).")] = "small",
    backbone: Annotated[list[str] | None, typer.Option(help="Backbones to compare; may be repeated.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seeds instead of the preset's; may be repeated.")] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", envvar="SKYPART_EXPERIMENT_SET", help="section.key=value for every training."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its estimated time only.")] = False,
    device: Annotated[str, typer.Option(envvar="SKYPART_DEVICE", help="auto, cpu, cuda, cuda:1.")] = "auto",
) -> None:
    """Run one comparison of the paper: train, evaluate, compare, and write tables and figures."""
    from skypart.experiments.command import run_command
    from skypart.experiments.jobs import Options

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


def report(
    results: Annotated[list[Path], typer.Argument(help="Folders of `skypart experiment` or `skypart evaluate`.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML page to write.")] = Path("report.html"),
) -> None:
    """Write one static HTML page of any set of results: sortable tables, figures, recipes and their differences."""
    from skypart.experiments.report import write_report

    write_report(results, output)
    typer.echo(f"wrote {output}")
