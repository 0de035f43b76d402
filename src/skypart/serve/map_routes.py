"""Routes of the index, its map, its example photos, and the server's health."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from skypart.geo.footprint import Footprint
from skypart.serve.encoded_images import EncodedImage, TileCache, encode_jpeg, encode_png, is_tile, with_etag
from skypart.serve.errors import HttpError, Problem
from skypart.serve.schemas import ExampleAnswer, HealthAnswer, IndexAnswer
from skypart.serve.state import ServerState

MAP_ERRORS: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "Not found."},
    503: {
        "model": Problem,
        "description": "The queue is full (see Retry-After), or a map cannot be read.",
    },
}
ONE_YEAR, ONE_MINUTE = "max-age=31536000, immutable", "max-age=60"
EXAMPLE_EDGE, EXAMPLE_QUALITY, THUMBNAIL_QUALITY = 8192, 95, 82


def _image_responses(media_type: str, text: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of a route that returns an image."""
    return {200: {"description": text, "content": {media_type: {}}}, **MAP_ERRORS}


def map_routes(state: ServerState) -> APIRouter:
    """The routes of the index, its map and its examples."""
    routes = APIRouter()
    tiles = TileCache()
    state.metrics.add_gauge("skypart_tile_cache_bytes", "Encoded tiles in the cache.", lambda: tiles.bytes)

    def image_response(request: Request, image: EncodedImage, media_type: str, version: str | None) -> Response:
        """An image with caching headers; 304 if the client has it already, 204 if it is empty."""
        scope = "private" if state.options.api_key else "public"
        age = ONE_YEAR if version == state.index.version else ONE_MINUTE
        headers = {"Cache-Control": f"{scope}, {age}", "ETag": image.etag}
        if image.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if not image.data:
            return Response(status_code=204, headers=headers)
        return Response(image.data, media_type=media_type, headers=headers)

    @routes.get("/healthz", tags=["server"], summary="Health check")
    async def healthz() -> HealthAnswer:
        return HealthAnswer(status="ok")

    @routes.get("/metrics", tags=["server"], summary="Metrics for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.get("/v1/index", tags=["map"], summary="Facts about the index")
    async def index() -> IndexAnswer:
        return state.index

    @routes.get(
        "/tiles/{z}/{x}/{y}.png",
        tags=["map"],
        summary="A Web Mercator tile of the map",
        response_class=Response,
        responses={
            **_image_responses("image/png", "256 x 256 pixels."),
            204: {"description": "The map has nothing there."},
        },
    )
    async def tile(request: Request, z: int, x: int, y: int, v: str | None = None) -> Response:
        """With `?v=` and the version from /v1/index, clients may cache the tile forever."""
        if not is_tile(z, x, y):
            raise HttpError(404, f"there is no tile {z}/{x}/{y}")
        image = tiles.get((z, x, y))
        if image is None:

            def draw() -> EncodedImage:
                pixels = state.service.tile(z, x, y)
                return with_etag(b"" if pixels is None or not pixels[..., 3].any() else encode_png(pixels))

            image = await state.map_workers.run(draw, request.receive)
            tiles.put((z, x, y), image)
        return image_response(request, image, "image/png", v)

    @routes.get(
        "/v1/view",
        tags=["map"],
        summary="A square crop of the map",
        response_class=Response,
        responses=_image_responses("image/jpeg", "The map under the footprint."),
    )
    async def view(
        request: Request,
        latitude: Annotated[float, Query(ge=-90, le=90, description="Latitude of the centre.", allow_inf_nan=False)],
        longitude: Annotated[
            float, Query(ge=-180, le=180, description="Longitude of the centre.", allow_inf_nan=False)
        ],
        metres: Annotated[float, Query(gt=0, le=100_000, description="Edge length, metres.", allow_inf_nan=False)],
        rotation: Annotated[float, Query(ge=-360, le=360, description="Compass direction of the upper edge.")] = 0.0,
        size: Annotated[int, Query(ge=16, le=1024, description="Edge length, pixels.")] = 256,
        v: str | None = None,
    ) -> Response:
        """Shows the candidates of /v1/locate."""
        footprint = Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation)

        def draw() -> EncodedImage:
            return with_etag(encode_jpeg(state.service.view(footprint, size), size))

        image = await state.map_workers.run(draw, request.receive)
        return image_response(request, image, "image/jpeg", v)

    @routes.get("/v1/examples", tags=["photos"], summary="Example photos")
    async def examples() -> list[ExampleAnswer]:
        return [ExampleAnswer.from_example(example) for example in state.examples.values()]

    @routes.get(
        "/v1/examples/{name}.jpg",
        tags=["photos"],
        summary="An example photo",
        response_class=Response,
        responses=_image_responses("image/jpeg", "The photo."),
    )
    async def example(
        request: Request,
        name: str,
        size: Annotated[int | None, Query(ge=16, le=1024, description="Longer edge, pixels.")] = None,
        v: str | None = None,
    ) -> Response:
        """`?size=240` returns a thumbnail."""
        found = state.examples.get(name)
        if found is None:
            raise HttpError(404, f"there is no example {name!r}; /v1/examples lists them")
        edge, quality = (EXAMPLE_EDGE, EXAMPLE_QUALITY) if size is None else (size, THUMBNAIL_QUALITY)
        image = await state.map_workers.run(
            lambda: with_etag(encode_jpeg(found.load(), edge, quality)), request.receive
        )
        return image_response(request, image, "image/jpeg", v)

    return routes
