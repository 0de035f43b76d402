import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from skypart.datasets import open_dataset
from skypart.errors import SkyPartError
from skypart.evaluation.embedding import Corruption
from skypart.evaluation.protocol import Protocol, embed_dataset, evaluate
from skypart.evaluation.run import open_source, run_weather
from skypart.images.weather import CONDITIONS
from tests.datasets.fakes import make_sues_raw
from tests.evaluation.fake_embedder import FakeEmbedder


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_ten_conditions_with_satellites_embedded_once(tmp_path: Path) -> None:
    dataset = open_dataset(make_sues_raw(tmp_path / "data", ids=(1, 8, 12, 14), images=1, altitudes=(150, 300)))
    embedder = FakeEmbedder()
    protocol = Protocol(24, "bicubic", weather="weatherprompt")
    source = open_source(embedder, tmp_path / "cache")
    result = run_weather(source, dataset, tmp_path / "out", "fake", protocol, [0.5], quiet())
    drone, satellites = 4 * 2, 4
    assert embedder.embedded == satellites + drone * (10 + 9)
    assert list(result.conditions) == list(CONDITIONS)

    corruption = Corruption("fog_snow", "weatherprompt", 0)
    alone = evaluate(dataset, embed_dataset(dataset, source, corruption), protocol)
    assert result.conditions["fog_snow"] == alone.headline
    assert embedder.embedded == satellites + drone * 19

    rows = list(csv.DictReader((tmp_path / "out/weather-D2S.csv").read_text().splitlines()[1:]))
    cells = [float(rows[0][f"{name} R@1"]) for name in ("Normal", "Fog", "Rain", "Snow", "Fog+Rain", "Fog+Snow")]
    assert cells[5] == pytest.approx(alone.headline["D2S"]["R@1"], abs=1e-3)
    every = [result.conditions[name]["D2S"]["R@1"] for name in CONDITIONS]
    assert float(rows[0]["Mean R@1"]) == pytest.approx(np.mean(every), abs=1e-3)
    paper = next(row for row in rows if row["method"].startswith("SkyPart (paper)"))
    assert paper["origin"] == "quoted (tab:weather_sues_full)" and float(paper["Dark AP"]) == 94.50
    assert json.loads((tmp_path / "out/weather.json").read_text())["protocol"]["weather"] == "weatherprompt"
    for name in ("weather-S2D.md", "weather-D2S.tex"):
        assert "weather profile weatherprompt (seed 0" in (tmp_path / "out" / name).read_text()
    assert "in ten weathers, mean over altitudes" in (tmp_path / "out/weather-D2S.md").read_text()
    each = json.loads((tmp_path / "out/weather.json").read_text())["altitudes"]["fog_snow"]
    assert set(each) == {"D2S 150 m", "D2S 300 m", "S2D 150 m", "S2D 300 m"}
    mean = np.mean([each["D2S 150 m"]["R@1"], each["D2S 300 m"]["R@1"]])
    assert mean == pytest.approx(alone.headline["D2S"]["R@1"])
    figures = sorted(path.name for path in (tmp_path / "out/figures").iterdir())
    assert figures == ["weather-drop.png", "weather-radar.png", "weather-severity.png"]


def test_a_second_run_embeds_nothing_and_another_seed_only_drone_images(tmp_path: Path) -> None:
    dataset = open_dataset(make_sues_raw(tmp_path / "data", ids=(1, 8, 12), images=1, altitudes=(150,)))
    counts = []
    for seed in (0, 0, 1):
        embedder = FakeEmbedder()
        protocol = Protocol(24, "bicubic", weather="paper", seed=seed)
        source = open_source(embedder, tmp_path / "cache")
        run_weather(source, dataset, tmp_path / "out", "fake", protocol, (), quiet())
        counts.append(embedder.embedded)
    assert counts == [3 + 3 * 10, 0, 3 * 9]


def test_an_unknown_weather_profile_raises(tmp_path: Path) -> None:
    dataset = open_dataset(make_sues_raw(tmp_path / "data", ids=(1, 8), images=1, altitudes=(150,)))
    source = open_source(FakeEmbedder(), tmp_path / "cache")
    with pytest.raises(SkyPartError, match="unknown weather profile"):
        run_weather(source, dataset, tmp_path / "out", "fake", Protocol(24, "bicubic", weather="stormy"))
