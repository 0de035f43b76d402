"""A painted town, an application that serves it, and test clients."""

import io
from collections.abc import Callable

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from skypart.images.decode import RgbImage
from skypart.serve.app import create_app
from skypart.serve.options import ServeOptions
from skypart.serve.service import LocateService
from tests.serve.fake_service import FakeService, paint_town


@pytest.fixture(scope="session")
def shared_service() -> FakeService:
    """One for all tests, because painting takes a second."""
    return FakeService(paint_town(7))


@pytest.fixture
def service(shared_service: FakeService) -> FakeService:
    """The painted town, with no calls recorded."""
    shared_service.calls.clear()
    return shared_service


def open_app(service: LocateService, **options: object) -> TestClient:
    """A client of an application in this process. options: those of ServeOptions."""
    app = create_app(service, ServeOptions(**options))  # type: ignore[arg-type]
    return TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


@pytest.fixture
def open_client() -> Callable[..., TestClient]:
    return open_app


@pytest.fixture(scope="session")
def shared_client(shared_service: FakeService) -> TestClient:
    return open_app(shared_service)


@pytest.fixture
def client(service: FakeService, shared_client: TestClient) -> TestClient:
    return shared_client


def encoded(image: RgbImage, form: str = "PNG") -> bytes:
    """An image file."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, form)
    return out.getvalue()


@pytest.fixture
def photo(service: FakeService) -> bytes:
    """A photo of the town around pixel (300, 320)."""
    return encoded(service.photo(300, 320), "JPEG")


@pytest.fixture
def grey() -> bytes:
    """A photo of one colour."""
    return encoded(np.full((64, 64, 3), 90, np.uint8))
