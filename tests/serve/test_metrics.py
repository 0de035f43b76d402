import re
from collections.abc import Callable

from fastapi.testclient import TestClient

from skypart.serve.metrics import BUCKETS_S, Metrics, resident_bytes
from tests.serve.fake_service import FakeService


def values(text: str) -> dict[str, float]:
    """Name with labels -> value, of every line."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+', line) for line in lines)
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def test_durations_are_counted_in_buckets() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.005, 0.2, 99.0):
        metrics.observe("GET", "/x", 200, seconds)
    found = values(metrics.text())
    assert found['skypart_request_seconds_bucket{route="/x",le="0.005"}'] == 2
    assert found['skypart_request_seconds_bucket{route="/x",le="0.25"}'] == 3
    assert found[f'skypart_request_seconds_bucket{{route="/x",le="{BUCKETS_S[-1]}"}}'] == 3
    assert found['skypart_request_seconds_bucket{route="/x",le="+Inf"}'] == 4
    assert found['skypart_request_seconds_count{route="/x"}'] == 4
    assert abs(found['skypart_request_seconds_sum{route="/x"}'] - 99.206) < 1e-6


def test_requests_and_errors_are_counted(
    service: FakeService, open_client: Callable[..., TestClient], photo: bytes
) -> None:
    client = open_client(service)
    client.post("/v1/locate", files={"photo": ("a.jpg", photo)})
    client.post("/v1/locate", files={"photo": ("a.jpg", b"none")})
    for number in range(40):
        client.get(f"/nothing/{number}")
        client.get(f"/static/{number}.js")
    client.get("/healthz", headers={"host": "evil.example"})
    client.request("BREW", "/healthz")
    found = values(client.get("/metrics").text)
    assert found['skypart_requests_total{method="POST",route="/v1/locate",status="200"}'] == 1
    assert found['skypart_requests_total{method="POST",route="/v1/locate",status="415"}'] == 1
    assert found['skypart_requests_total{method="GET",route="other",status="404"}'] == 40
    assert found['skypart_requests_total{method="GET",route="/static",status="404"}'] == 40
    assert found["skypart_errors_total"] == 0 and found["skypart_busy_total"] == 0
    assert found["skypart_queue_length"] == 0
    assert not any("evil" in name or "BREW" in name or "nothing" in name for name in found)


def test_memory_is_of_this_process(client: TestClient) -> None:
    before = resident_bytes()
    assert 20e6 < before < 50e9
    hold = bytearray(b"x" * 80_000_000)
    assert resident_bytes() - before > 0.7 * len(hold)
    assert values(client.get("/metrics").text)["process_resident_memory_bytes"] > 20e6
