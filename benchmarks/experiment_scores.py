"""The page of a comparison that was cut short: rows may have different seeds, and are paired on those both have.

    python benchmarks/experiment_scores.py out/same-block "SkyPart (as published)" > page.md

Reads OUT/scores/*.npz, written by `skypart experiment`. Needs no torch, so it is quick on a busy machine.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skypart.experiments.statistics import paired_bootstrap, spread

DIRECTIONS = {"D2S": "D→S", "S2D": "S→D"}
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """One row and seed in clear weather. hits, ap: direction -> (q,) in percent; places: direction -> (q,)."""

    row: str
    seed: int
    hits: dict[str, Floats]
    ap: dict[str, Floats]
    places: dict[str, NDArray[np.str_]]


def read_scores(path: Path) -> Scores:
    """The queries of all altitudes of one file, joined per direction."""
    with np.load(path, allow_pickle=False) as content:
        about = json.loads(str(content["about"]))
        splits = sorted(key.removesuffix("|first") for key in content.files if key.endswith("|first"))
        chosen = {d: [s for s in splits if s.startswith(f"clean|{d}")] for d in DIRECTIONS}

        def joined(direction: str, name: str) -> NDArray[np.generic]:
            return np.concatenate([content[f"{split}|{name}"] for split in chosen[direction]])

        return Scores(
            about["row"],
            about["seed"],
            {d: 100.0 * (joined(d, "first") == 0) for d in DIRECTIONS},
            {d: 100.0 * joined(d, "ap").astype(np.float64) for d in DIRECTIONS},
            {d: joined(d, "places").astype(np.str_) for d in DIRECTIONS},
        )


def results_table(rows: dict[str, dict[int, Scores]]) -> list[str]:
    """R@1 and AP of every row and seed."""
    lines = ["| head | seed | D→S R@1 | D→S AP | S→D R@1 | S→D AP |", "|---|---:|---:|---:|---:|---:|"]
    for name, seeds in rows.items():
        values = [[each.mean() for d in DIRECTIONS for each in (s.hits[d], s.ap[d])] for s in seeds.values()]
        for seed, cells in zip(seeds, values, strict=True):
            lines.append(f"| {name} | {seed} | " + " | ".join(f"{value:.2f}" for value in cells) + " |")
        if len(seeds) > 1:
            means = " | ".join(f"{spread(column).mean:.2f}" for column in zip(*values, strict=True))
            lines.append(f"| {name} | mean | {means} |")
    return lines


def differences_table(rows: dict[str, dict[int, Scores]], reference: str) -> list[str]:
    """Each row against the reference: difference of R@1, and its 95 % interval over places."""
    lines = [
        f"| head, against {reference} | seeds | test | Δ R@1 | 95 % over places | p | real |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for name, seeds in rows.items():
        common = [seed for seed in seeds if seed in rows[reference]]
        if name == reference or not common:
            continue
        for direction, arrow in DIRECTIONS.items():
            mine, theirs = (
                np.stack([rows[each][seed].hits[direction] for seed in common]) for each in (name, reference)
            )
            found = paired_bootstrap(mine, theirs, seeds[common[0]].places[direction])
            lines.append(
                f"| {name} | {len(common)} | {arrow} | {found.mean:+.2f} | {found.low:+.2f} to {found.high:+.2f} "
                f"| {found.p:.4f} | {'yes' if found.is_real else 'no'} |"
            )
    return lines


def main() -> None:
    """Print the tables of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("reference")
    arguments = parser.parse_args()
    rows: dict[str, dict[int, Scores]] = {}
    for path in sorted((arguments.folder / "scores").glob("*.npz")):
        scores = read_scores(path)
        rows.setdefault(scores.row, {})[scores.seed] = scores
    rows = {name: dict(sorted(seeds.items())) for name, seeds in sorted(rows.items(), key=lambda item: len(item[0]))}
    print("\n".join(["## Results", "", *results_table(rows), "", "## Differences", "",
                     *differences_table(rows, arguments.reference)]))  # fmt: skip


if __name__ == "__main__":
    main()
