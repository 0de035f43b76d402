import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skypart.errors import SkyPartError
from skypart.evaluation import cache as cache_module
from skypart.evaluation.cache import EmbeddingCache, content_hash, content_key


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 5), dtype=np.float32)


def same(one: np.ndarray | None, other: np.ndarray) -> bool:
    return one is not None and np.array_equal(one, other)


def keys(n: int) -> list[bytes]:
    return [content_key(str(i), 448) for i in range(n)]


def test_embeddings_are_read_by_a_new_process(tmp_path: Path) -> None:
    with EmbeddingCache(tmp_path, "model", 5) as first:
        first.put(keys(3)[:2], rows(2))
        first.put(keys(3)[2:], rows(1, 1))
        del first  # as after kill -9: nothing is closed
        again = EmbeddingCache(tmp_path, "model", 5)
        assert len(again) == 3
        for key, row in zip(keys(3), [*rows(2), *rows(1, 1)], strict=True):
            assert same(again.get(key), row)
        assert again.get(content_key("0", 392)) is None
        assert len(EmbeddingCache(tmp_path, "other model", 5)) == 0


@pytest.mark.parametrize("suffix", [".keys", ".vectors"])
def test_incomplete_last_rows_are_ignored(tmp_path: Path, suffix: str) -> None:
    EmbeddingCache(tmp_path, "model", 5).put(keys(3), rows(3))
    file = next((tmp_path / "model").glob(f"*{suffix}"))
    file.write_bytes(file.read_bytes()[:-3])
    again = EmbeddingCache(tmp_path, "model", 5)
    assert len(again) == 2
    again.put(keys(3)[2:], rows(3)[2:])
    assert len(EmbeddingCache(tmp_path, "model", 5)) == 3


def test_damaged_vectors_are_not_used(tmp_path: Path) -> None:
    EmbeddingCache(tmp_path, "model", 5).put(keys(2), rows(2))
    file = next((tmp_path / "model").glob("*.vectors"))
    data = bytearray(file.read_bytes())
    data[2] ^= 1
    file.write_bytes(data)
    again = EmbeddingCache(tmp_path, "model", 5)
    assert again.get(keys(2)[0]) is None
    assert same(again.get(keys(2)[1]), rows(2)[1])


def test_two_concurrent_runs_keep_both_shards(tmp_path: Path) -> None:
    one, other = EmbeddingCache(tmp_path, "model", 5), EmbeddingCache(tmp_path, "model", 5)
    for i in range(0, 6, 2):
        one.put(keys(6)[i : i + 1], rows(6)[i : i + 1])
        other.put(keys(6)[i + 1 : i + 2], rows(6)[i + 1 : i + 2])
    again = EmbeddingCache(tmp_path, "model", 5)
    assert all(same(again.get(key), row) for key, row in zip(keys(6), rows(6), strict=True))


def test_a_full_disk_is_reported_and_the_rest_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EmbeddingCache(tmp_path, "model", 5)
    store.put(keys(2), rows(2))
    written = 0

    def full(file: Any, data: bytes) -> None:
        nonlocal written
        written += 1
        file.write(data[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_module, "_write_all", full)
    with pytest.raises(SkyPartError, match=r"No space left on device.*are kept"):
        store.put([content_key("9", 448)], rows(1))
    monkeypatch.undo()
    assert written == 1
    again = EmbeddingCache(tmp_path, "model", 5)
    assert len(again) == 2
    store.put([content_key("9", 448)], rows(1))
    assert len(EmbeddingCache(tmp_path, "model", 5)) == 3


def test_keys_differ_by_content_and_settings(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"one")
    (tmp_path / "c").write_bytes(b"two")
    hashes = [content_hash(tmp_path / name) for name in "abc"]
    assert hashes[0] == hashes[1] != hashes[2]
    assert content_key(hashes[0], 448, "area") != content_key(hashes[0], 448, "bicubic")
    with pytest.raises(SkyPartError, match="cannot read"):
        content_hash(tmp_path / "nowhere")


def test_a_file_instead_of_the_cache_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("x")
    with pytest.raises(SkyPartError, match="--cache"):
        EmbeddingCache(tmp_path / "cache", "model", 5)


def test_an_empty_xdg_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_module.default_folder() == Path.home() / ".cache" / "skypart" / "embeddings"
