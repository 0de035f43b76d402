"""`skypart demo`: render a tiny world, learn its places by heart, find them again, and draw the parts."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

from skypart.atomic import atomic_path
from skypart.datasets import open_dataset
from skypart.images.decode import read_rgb
from skypart.model.embedder import Embedder, load
from skypart.model.picture import parts_picture
from skypart.training.distributed import start_workers
from skypart.training.overfit import overfit
from skypart.training.recipe import BackboneRecipe, BatchRecipe, DataRecipe, Recipe, RunRecipe
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request


def run_demo(out: Path) -> None:
    """Write world, model and pictures under `out` and print how the drone views rank the satellite tiles.

    The model is tiny and starts from nothing: it shows the whole way from pictures to parts to a ranking on
    places it has seen, and says nothing about places it has not.
    """
    console = Console()
    console.print("[bold]1[/] rendering a tiny town seen by satellite and drone")
    world = out / "world"
    make_world(world, build_request(None, "tiny", seed=5))
    console.print("[bold]2[/] learning its places by heart with a tiny untrained model (a check, not a result)")
    recipe = Recipe(
        data=DataRecipe(root=str(world), kind="sues200", workers=0),
        backbone=BackboneRecipe(name="untrained:tiny", size=112, trainable_blocks=4),
        batch=BatchRecipe(locations=4, drone=2),
        run=RunRecipe(out=str(out / "run"), seed=1, device="cpu"),
    )
    recipe = replace(recipe, optimiser=replace(recipe.optimiser, backbone_lr=3e-4))
    result = overfit(recipe, start_workers("cpu"))
    model = out / "demo.safetensors"
    shutil.copyfile(result.best or result.model, model)
    console.print(f"   R@1 on these places: {result.progress.best:.0f} % after {result.progress.step} steps")
    console.print("[bold]3[/] ranking the satellite tiles for one drone view of each place")
    embedder = load(model)
    train = open_dataset(world).train
    places = sorted({record.location for record in train})
    tiles = [next(r.path for r in train if r.location == p and r.view == "satellite") for p in places]
    views = [next(r.path for r in train if r.location == p and r.view == "drone") for p in places]
    similarity = embedder.embed(views) @ embedder.embed(tiles).T
    console.print(_ranking(similarity, places))
    picture = out / "parts.png"
    _draw_pair(embedder, views[0], tiles[0], picture)
    console.print(f"[bold]4[/] the parts of a drone view and its satellite tile: {picture}")


def _ranking(similarity: NDArray[np.float32], places: list[str]) -> Table:
    """A row a drone view: cosine to each tile, the best marked."""
    table = Table("drone view of", *places, title="cosine similarity to the satellite tile of")
    for place, row in zip(places, similarity, strict=True):
        best = int(row.argmax())
        cells = [f"[bold green]{v:.2f}[/]" if i == best else f"{v:.2f}" for i, v in enumerate(row)]
        table.add_row(place, *cells)
    return table


def _draw_pair(embedder: Embedder, view: Path, tile: Path, picture: Path) -> None:
    """Draw drone view and tile with their parts, one above the other."""
    pair = ((view, "drone view"), (tile, "satellite tile"))
    drawn = [parts_picture(read_rgb(path), embedder.explain(path), title) for path, title in pair]
    sheet = Image.new("RGB", (drawn[0].width, sum(d.height for d in drawn)), (250, 250, 250))
    top = 0
    for part in drawn:
        sheet.paste(part, (0, top))
        top += part.height
    with atomic_path(picture) as temporary:
        sheet.save(temporary)
