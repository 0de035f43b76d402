"""Many clients at once; `benchmarks/serve_load.py` does the same for the full minute."""

import argparse

import pytest
from benchmarks.serve_load import is_flat, levels, load, memory_mb, photos, report, start_server


@pytest.mark.slow
def test_many_clients_get_answers_or_are_told_when_to_come_back() -> None:
    arguments = argparse.Namespace(index="", clients=32, seconds=16.0)
    server, url = start_server(arguments)
    try:
        before = memory_mb(url)
        load(url, arguments.clients, 8.0, photos())  # else the allocator may not be warm yet on a busy machine
        log = load(url, arguments.clients, arguments.seconds, photos())
    finally:
        server.terminate()
        server.wait()
    assert log.wrong == []
    assert log.answers["locate", 200] > 0 and log.answers["locate", 503] > 0
    assert {status for _, status in log.answers} == {200, 422, 503}
    assert is_flat(*levels(log, arguments.seconds)), report(log, arguments, before)


def test_memory_that_grows_is_not_flat() -> None:
    assert is_flat(300, 310) and is_flat(300, 200)
    assert not is_flat(300, 380)
