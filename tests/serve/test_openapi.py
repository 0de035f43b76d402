from typing import Any

import pytest
from fastapi.testclient import TestClient


@pytest.fixture
def schema(client: TestClient) -> dict[str, Any]:
    schema: dict[str, Any] = client.get("/openapi.json").json()
    return schema


def test_every_route_is_documented(schema: dict[str, Any]) -> None:
    assert set(schema["paths"]) == {
        "/healthz",
        "/v1/fly",
        "/v1/fly/frame.jpg",
        "/metrics",
        "/tiles/{z}/{x}/{y}.png",
        "/v1/examples",
        "/v1/examples/{name}.jpg",
        "/v1/index",
        "/v1/locate",
        "/v1/parts",
        "/v1/view",
        "/v1/weather",
    }
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path


def test_every_field_of_the_form_is_documented(schema: dict[str, Any]) -> None:
    body = schema["paths"]["/v1/locate"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert body["required"] == ["photo"]
    wanted = {"photo", "latitude", "longitude", "radius_m", "heading_deg", "altitude_m", "tilt_deg", "fov_deg"}
    assert set(body["properties"]) == wanted | {"weather", "profile", "seed", "exif", "format"}
    for name, field in body["properties"].items():
        assert field["description"], name
    assert len(body["properties"]["weather"]["enum"]) == 10
    assert body["properties"]["photo"]["format"] == "binary"


def test_responses_and_errors_are_documented(schema: dict[str, Any]) -> None:
    answers = schema["paths"]["/v1/locate"]["post"]["responses"]
    assert set(answers) == {"200", "400", "401", "408", "413", "415", "422", "503"}
    assert "application/geo+json" in answers["200"]["content"]
    reference = answers["200"]["content"]["application/json"]["schema"]["$ref"]
    fix = schema["components"]["schemas"][reference.rsplit("/", 1)[1]]
    for name, field in fix["properties"].items():
        assert "description" in field or "$ref" in field, name


def test_there_is_no_documentation_page_from_a_cdn(client: TestClient) -> None:
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404
