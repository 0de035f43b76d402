"""`skypart bench` measures every engine in turns."""

from pathlib import Path

import pytest

from skypart.errors import SkyPartError
from skypart.export.bench import EAGER, BenchResult, Start, Timing, bench_tables, read_numbers, run_bench
from skypart.model import SkyPart
from skypart.model.storage import save_model


def test_ratios_are_medians_within_rounds() -> None:
    eager, other = Timing(EAGER, 56, 2, [0.2, 0.4, 0.2]), Timing("other", 56, 2, [0.1, 0.1, 0.1])
    result = BenchResult([eager, other], [], 100.0, {56: 5.0}, {}, [])
    assert result.ratio(other) == pytest.approx(2.0) and result.ratio(eager) == 1.0
    assert other.ms_per_image == pytest.approx(50.0)
    assert result.peak_share(other) == pytest.approx(1.0)  # 5 GFLOP in 50 ms are 100 GFLOP/s


def test_numbers_are_parsed() -> None:
    assert read_numbers("224, 448") == [224, 448] and read_numbers("") == []
    with pytest.raises(SkyPartError, match="whole numbers"):
        read_numbers("224px")


@pytest.mark.slow
def test_a_model_is_measured_in_pytorch_and_in_a_new_process(tiny_model: SkyPart, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_model(tiny_model, file)
    result = run_bench(str(file), sizes=(42, 56), batches=(1, 2), rounds=3)
    assert [(each.engine, each.size, each.batch) for each in result.timings] == [
        (EAGER, size, batch) for size in (42, 56) for batch in (1, 2)
    ]
    assert all(len(each.cpu) == 3 and each.ms_per_image > 0 for each in result.timings)
    assert result.gemm > 0 and set(result.head) == set(result.gflop) == {42, 56}
    (start,) = result.starts
    assert isinstance(start, Start) and 0 < start.load_s < start.wall_s and start.peak_mb > 50
    assert [table.row_count for table in bench_tables(result)] == [4, 1]
    with pytest.raises(SkyPartError, match="3 rounds"):
        run_bench(str(file), rounds=1)
