"""The routes and the page of a live flight."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from fastapi.testclient import TestClient

from skypart.position.fix import Fix
from skypart.position.frames import Frame
from skypart.position.live import Report
from skypart.serve.app import create_app
from skypart.serve.fly_board import FlyBoard
from skypart.serve.options import ServeOptions
from skypart.serve.server import serve_board
from tests.bridge.reports import LOST, TIME, TRACKING
from tests.serve.browser import Visit, open_browser
from tests.serve.fake_service import FakeService


def at(service: FakeService, x: float, y: float, seconds: float) -> Report:
    latitude, longitude = service.degrees(x, y)
    point = replace(TRACKING.point, latitude=latitude, longitude=longitude)
    return replace(TRACKING, time=TIME + timedelta(seconds=seconds), point=point)


def test_without_a_flight_the_state_says_so(client: TestClient) -> None:
    answer = client.get("/v1/fly").json()
    assert answer["flying"] is False and answer["report"] is None and answer["path"] == []
    assert client.get("/v1/fly/frame.jpg").status_code == 404
    page = client.get("/fly")
    assert page.status_code == 200 and "/static/js/fly.js" in page.text


def test_the_state_has_the_newest_report_and_the_path_since(service: FakeService) -> None:
    board = FlyBoard()
    client = TestClient(create_app(service, ServeOptions(), board), base_url="http://127.0.0.1:8000")
    for number in range(3):
        board.send(at(service, 300 + 10 * number, 300, number))
    board.send(replace(LOST, problem="cam: the stream broke off"))
    board.show_frame(Frame(1.0, np.full((60, 80, 3), 200, np.uint8), "a"), Fix(photo="a", reason="dark"))
    answer = client.get("/v1/fly?after=2").json()
    assert answer["flying"] and [point[0] for point in answer["path"]] == [3, 4]
    assert answer["report"]["state"] == "lost" and answer["report"]["problem"] == "cam: the stream broke off"
    assert answer["fix"]["reason"] == "dark" and answer["frame"] == 1
    frame = client.get("/v1/fly/frame.jpg")
    assert frame.status_code == 200 and frame.headers["content-type"] == "image/jpeg"
    board.close()
    assert client.get("/v1/fly").json()["ended"] is True


@pytest.mark.slow
def test_the_page_shows_a_flight(shared_service: FakeService) -> None:
    board = FlyBoard()
    url = serve_board(board, shared_service, 0).removesuffix("/fly")
    with open_browser() as browser:
        visit = Visit(browser, url)
        page = visit.page
        page.goto(f"{url}/fly")
        for number in range(5):
            board.send(at(shared_service, 300 + 20 * number, 300, number))
        latitude, longitude = shared_service.degrees(380, 300)
        fix = Fix(photo="a", latitude=latitude, longitude=longitude, radius_m=12.0, ground_m=160.0, heading_deg=0.0)
        board.show_frame(Frame(1.0, shared_service.photo(380, 300), "a"), fix)
        page.wait_for_selector("#state[data-state=tracking]")
        page.wait_for_selector("#frame:not([hidden])")
        page.wait_for_selector("#match:not([hidden])")
        assert "12 m" in page.inner_text("#radius") and "matched" in page.inner_text("#source")
        assert page.locator("path.leaflet-interactive").count() >= 4
        board.send(LOST)
        page.wait_for_selector("#state[data-state=lost]")
        page.wait_for_selector("#operator:not([hidden])")
        assert visit.foreign() == [] and visit.errors == []
        visit.close()
