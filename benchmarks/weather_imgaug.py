"""The oracle: imgaug 0.4.0's own draws of the 2 x 10 cells. Runs in the throw-away environment, never in SkyPart's.

Usage: python weather_imgaug.py REQUEST.json ANSWER.json
Request: {"statistics": path of weather/statistics.py or null, "images": {name: png}, "draws": per image,
          "cells": [[profile, condition], ...], "samples": folder or null,
          "independent": true to give every layer a random stream of its own}
Answer:  {"cells": {"profile/condition": {"cpu_ms": [...], "draws": {image: {statistic: [...]}}}}, "versions": {...}}
"""

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import imgaug as ia  # type: ignore[import-not-found]
import imgaug.augmenters as iaa  # type: ignore[import-not-found]
import numpy as np

FOG = {
    "intensity_mean": 225,
    "intensity_freq_exponent": -2,
    "intensity_coarse_scale": 2,
    "alpha_min": 1.0,
    "alpha_multiplier": 0.9,
    "alpha_size_px_max": 10,
    "alpha_freq_exponent": -2,
    "sparsity": 0.9,
    "density_multiplier": 0.5,
}
Statistics = Callable[[Any, Any], dict[str, float]]


def fog() -> Any:
    return iaa.CloudLayer(seed=35, **FOG)


def rain(low: float, high: float, seed: int) -> Any:
    return iaa.Rain(drop_size=(low, high), speed=(0.04, 0.06), seed=seed)


def snow(low: float, high: float, seed: int) -> Any:
    return iaa.Snowflakes(flake_size=(low, high), speed=(0.007, 0.03), seed=seed)


def paper_cell(condition: str) -> list[Any]:
    """The steps of one condition in the paper's parameter table."""
    steps: dict[str, Callable[[], Any]] = {
        "fog": lambda: iaa.Fog(),
        "rain": lambda: iaa.Rain(speed=(0.1, 0.3)),
        "snow": lambda: iaa.Snowflakes(flake_size=(0.1, 0.4), speed=(0.01, 0.05)),
        "dark": lambda: iaa.Multiply((0.3, 0.5)),
        "over_exposure": lambda: iaa.Multiply((1.5, 2.0)),
        "wind": lambda: iaa.MotionBlur(k=15, angle=[-45, 45]),
    }
    if condition == "normal":
        return []
    names = [condition] if condition in steps else condition.split("_")
    return [steps[name]() for name in names]


def weatherprompt_cell(condition: str) -> list[Any]:
    """The steps of one condition in the released code of MuSe-Net and WeatherPrompt."""
    steps: dict[str, Callable[[], list[Any]]] = {
        "normal": lambda: [],
        "fog": lambda: [fog()],
        "rain": lambda: [
            rain(0.05, 0.1, 38),
            rain(0.05, 0.1, 35),
            rain(0.1, 0.2, 73),
            rain(0.1, 0.2, 93),
            rain(0.05, 0.2, 95),
        ],
        "snow": lambda: [
            snow(0.5, 0.8, 38),
            snow(0.5, 0.8, 35),
            snow(0.6, 0.9, 74),
            snow(0.6, 0.9, 94),
            snow(0.5, 0.9, 96),
        ],
        "fog_rain": lambda: [fog(), rain(0.05, 0.2, 35), rain(0.05, 0.2, 36)],
        "fog_snow": lambda: [fog(), snow(0.5, 0.9, 35), snow(0.5, 0.9, 36)],
        "rain_snow": lambda: [
            snow(0.5, 0.8, 35),
            rain(0.05, 0.1, 35),
            rain(0.1, 0.2, 92),
            rain(0.05, 0.2, 91),
            snow(0.6, 0.9, 74),
        ],
        "dark": lambda: [
            iaa.BlendAlpha(0.5, iaa.Add(100), iaa.Multiply(0.2), seed=31),
            iaa.MultiplyAndAddToBrightness(mul=0.2, add=(-30, -15), seed=1991),
        ],
        "over_exposure": lambda: [iaa.MultiplyAndAddToBrightness(mul=1.6, add=(0, 30), seed=1992)],
        "wind": lambda: [iaa.MotionBlur(15, seed=17)],
    }
    return steps[condition]()


def load_statistics(path: str) -> Statistics:
    spec = importlib.util.spec_from_file_location("statistics_of_skypart", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Statistics = module.image_statistics
    return function


def run_cell(
    profile: str,
    condition: str,
    images: dict[str, Any],
    draws: int,
    statistics: Statistics | None,
    samples: str | None,
    independent: bool,
) -> dict[str, Any]:
    """Draw `draws` times per image, images in turn, from augmenters that advance from call to call."""
    ia.seed(2024)
    steps = paper_cell(condition) if profile == "paper" else weatherprompt_cell(condition)
    augmenter = iaa.Sequential(steps)
    if independent:
        for number, layer in enumerate(augmenter.get_all_children(flat=True)):
            layer.random_state = ia.random.RNG(5000 + number)
    times = []
    collected: dict[str, dict[str, list[float]]] = {name: {} for name in images}
    for draw in range(draws):
        for name, clean in images.items():
            start = time.process_time()
            corrupted = augmenter(image=clean) if steps else clean.copy()
            times.append(1000.0 * (time.process_time() - start))
            if statistics is not None:
                for key, value in statistics(clean, corrupted).items():
                    collected[name].setdefault(key, []).append(round(value, 4))
            if samples is not None and draw < 4:
                target = Path(samples) / f"{profile}__{condition}__{name}__{draw}.png"
                cv2.imwrite(str(target), corrupted[:, :, ::-1])
    return {"cpu_ms": [round(t, 3) for t in times], "draws": collected}


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    cv2.setNumThreads(1)
    images = {
        name: np.ascontiguousarray(np.asarray(cv2.imread(path, cv2.IMREAD_COLOR))[:, :, ::-1])
        for name, path in request["images"].items()
    }
    statistics = load_statistics(request["statistics"]) if request["statistics"] else None
    cells = {}
    for profile, condition in request["cells"]:
        print(f"imgaug: {profile}/{condition}", file=sys.stderr, flush=True)
        cells[profile + "/" + condition] = run_cell(
            profile,
            condition,
            images,
            request["draws"],
            statistics,
            request.get("samples"),
            request.get("independent", False),
        )
    versions = {"imgaug": ia.__version__, "numpy": np.__version__, "opencv": cv2.__version__}
    Path(sys.argv[2]).write_text(json.dumps({"cells": cells, "versions": versions}))


if __name__ == "__main__":
    main()
