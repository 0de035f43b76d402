from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from skypart.datasets import open_dataset
from skypart.datasets.records import TestSplit
from skypart.drawing.style import AMBER, BLUE
from skypart.embedding import Explanation
from skypart.evaluation.figures import draw_figures, error_map
from skypart.evaluation.protocol import Protocol, Vectors, embed_dataset, evaluate
from skypart.evaluation.published import short_title
from skypart.evaluation.run import open_source
from skypart.evaluation.sheets import choose_queries, draw_sheet, retrieve
from skypart.images.decode import ImageLike
from tests.datasets.fakes import make_folders, make_university
from tests.evaluation.fake_embedder import FakeEmbedder


class Explaining(FakeEmbedder):
    """Sees two parts: left and right."""

    can_explain = True

    def explain(self, image: ImageLike) -> Explanation:
        assignment = np.zeros((4, 4, 2), dtype=np.float32)
        assignment[:, :2, 0] = assignment[:, 2:, 1] = 1.0
        ones = np.ones(2, dtype=np.float32)
        return Explanation(assignment, ones, np.array([True, True]), np.full((2, 2), 0.5, np.float32), ones, ones)


@pytest.fixture
def split_and_vectors(tmp_path: Path) -> tuple[TestSplit, Vectors]:
    dataset = open_dataset(make_university(tmp_path / "data", query=range(3, 13)))
    return dataset.tests[0], embed_dataset(dataset, open_source(FakeEmbedder(), tmp_path / "cache"))


def test_chosen_queries_are_best_worst_and_random(split_and_vectors: tuple[TestSplit, Vectors]) -> None:
    split, vectors = split_and_vectors
    swapped = dict(vectors)
    for record in split.query:  # location 5 looks like location 6: all its queries fail
        if record.location == "0005":
            swapped[record.path] = vectors[next(r.path for r in split.gallery if r.location == "0006")]
    retrieval = retrieve(split, swapped, "full")
    chosen = choose_queries(retrieval, each=2)
    assert [why for why, _ in chosen] == ["best", "best", "worst", "worst", "random", "random"]
    named = [split.query[index].location for _, index in chosen]
    assert len(set(named)) == 6
    assert named[2] == "0005"
    assert all(retrieval.first[index] == 0 for why, index in chosen if why == "best")
    assert retrieval.first[chosen[2][1]] > 0


@pytest.mark.parametrize("explains", [True, False])
def test_border_colours_mark_right_and_wrong_matches(
    split_and_vectors: tuple[TestSplit, Vectors], explains: bool
) -> None:
    split, vectors = split_and_vectors
    retrieval = retrieve(split, vectors, "full")
    index = int(np.argmax(retrieval.first == 0))
    sheet = draw_sheet(retrieval, [("best", index)], "title", Explaining() if explains else FakeEmbedder())
    left = 128 + (1 + explains) * 176
    colours = [sheet.getpixel((left + place * 176 + 1, 80)) for place in range(5)]
    names = ["#{:02X}{:02X}{:02X}".format(*pixel) for pixel in colours]  # type: ignore[misc]
    assert names == [AMBER.upper(), *[BLUE.upper()] * 4]
    assert sheet.width == left + 5 * 176 + 8


def test_all_figures_are_written(tmp_path: Path) -> None:
    dataset = open_dataset(make_folders(tmp_path / "data", [f"place{i}" for i in range(7)]))
    embedder = Explaining()
    vectors = embed_dataset(dataset, open_source(embedder, tmp_path / "cache"))
    result = evaluate(dataset, vectors, Protocol(24, "bicubic"), "fake")
    written = draw_figures(tmp_path / "out", dataset, vectors, result, embedder)
    names = sorted(path.name for path in (tmp_path / "out/figures").iterdir())
    assert names == ["errors-D2S.png", "errors-S2D.png", "ranks.png", "retrieval-D2S.png", "retrieval-S2D.png"]
    for path in written:
        with Image.open(path) as image:
            assert np.asarray(image).std() > 10


def test_no_error_map_without_positions(split_and_vectors: tuple[TestSplit, Vectors]) -> None:
    assert error_map(retrieve(*split_and_vectors, "full"), "title") is None


def test_figure_titles_of_unpublished_sets_say_so(tmp_path: Path) -> None:
    reduced = open_dataset(make_university(tmp_path / "mine"))
    assert short_title(reduced) == "mine (reduced like University-1652)"
    (tmp_path / "mine" / "world.json").write_text('{"complete": true}')
    assert short_title(reduced) == "mine (rendered like University-1652)"
    assert short_title(open_dataset(make_folders(tmp_path / "own"))) == "own"
