"""Addresses that tell and show what the index holds."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from skypart.geo.footprint import Footprint
from skypart.serve.answers import ExampleAnswer, HealthAnswer, IndexAnswer
from skypart.serve.photos import jpeg, png
from skypart.serve.problems import Problem, RefusedError
from skypart.serve.state import State
from skypart.serve.tiles import Picture, TileCache, is_tile, tagged

NOT_THERE: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "There is no such thing."},
    503: {
        "model": Problem,
        "description": "The queue is full (Retry-After), or a map cannot be read.",
    },
}
FOR_EVER, FOR_A_MINUTE = "max-age=31536000, immutable", "max-age=60"
EXAMPLE_EDGE, EXAMPLE_QUALITY = 8192, 95


def _pictures(media_type: str, text: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": text, "content": {media_type: {}}}, **NOT_THERE}


def map_routes(state: State) -> APIRouter:
    """The addresses of the index, its map and its examples."""
    routes = APIRouter()
    tiles = TileCache()
    state.metrics.gauge("skypart_tile_cache_bytes", "Encoded tiles that are kept.", lambda: tiles.bytes)

    def shown(request: Request, picture: Picture, media_type: str, version: str | None) -> Response:
        """A picture with its caching headers; nothing but those where the client has it already."""
        scope = "private" if state.options.api_key else "public"
        age = FOR_EVER if version == state.index.version else FOR_A_MINUTE
        headers = {"Cache-Control": f"{scope}, {age}", "ETag": picture.tag}
        if picture.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if not picture.data:
            return Response(status_code=204, headers=headers)
        return Response(picture.data, media_type=media_type, headers=headers)

    @routes.get("/healthz", tags=["server"], summary="Whether the server lives")
    async def healthz() -> HealthAnswer:
        return HealthAnswer(status="ok")

    @routes.get("/metrics", tags=["server"], summary="Counts and times for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.get("/v1/index", tags=["map"], summary="What the index holds")
    async def index() -> IndexAnswer:
        return state.index

    @routes.get(
        "/tiles/{z}/{x}/{y}.png",
        tags=["map"],
        summary="A Web Mercator tile of the map",
        response_class=Response,
        responses={**_pictures("image/png", "256 x 256 pixels."), 204: {"description": "The map has nothing there."}},
    )
    async def tile(request: Request, z: int, x: int, y: int, v: str | None = None) -> Response:
        """With `?v=` and the version of /v1/index the tile may be kept for ever."""
        if not is_tile(z, x, y):
            raise RefusedError(404, f"there is no tile {z}/{x}/{y}")
        picture = tiles.get((z, x, y))
        if picture is None:

            def draw() -> Picture:
                pixels = state.service.tile(z, x, y)
                return tagged(b"" if pixels is None or not pixels[..., 3].any() else png(pixels))

            picture = await state.maps.run(draw, request.receive)
            tiles.put((z, x, y), picture)
        return shown(request, picture, "image/png", v)

    @routes.get(
        "/v1/view",
        tags=["map"],
        summary="A square crop of the map",
        response_class=Response,
        responses=_pictures("image/jpeg", "The map under the footprint."),
    )
    async def view(
        request: Request,
        latitude: Annotated[float, Query(ge=-90, le=90, description="Of the centre.", allow_inf_nan=False)],
        longitude: Annotated[float, Query(ge=-180, le=180, description="Of the centre.", allow_inf_nan=False)],
        metres: Annotated[float, Query(gt=0, le=100_000, description="Edge on the ground.", allow_inf_nan=False)],
        rotation: Annotated[float, Query(ge=-360, le=360, description="Compass degrees that are up.")] = 0.0,
        size: Annotated[int, Query(ge=16, le=1024, description="Edge in pixels.")] = 256,
        v: str | None = None,
    ) -> Response:
        """For looking at the candidates of /v1/locate."""
        footprint = Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation)
        picture = await state.maps.run(lambda: tagged(jpeg(state.service.view(footprint, size), size)), request.receive)
        return shown(request, picture, "image/jpeg", v)

    @routes.get("/v1/examples", tags=["photos"], summary="Photos to try")
    async def examples() -> list[ExampleAnswer]:
        return [ExampleAnswer.of(example) for example in state.examples.values()]

    @routes.get(
        "/v1/examples/{name}.jpg",
        tags=["photos"],
        summary="One of the photos to try",
        response_class=Response,
        responses=_pictures("image/jpeg", "The photo."),
    )
    async def example(
        request: Request,
        name: str,
        size: Annotated[int | None, Query(ge=16, le=1024, description="Longest edge in pixels.")] = None,
        v: str | None = None,
    ) -> Response:
        """`?size=240` gives a small one."""
        found = state.examples.get(name)
        if found is None:
            raise RefusedError(404, f"there is no example {name!r}; /v1/examples lists them")
        edge, quality = (EXAMPLE_EDGE, EXAMPLE_QUALITY) if size is None else (size, 82)
        picture = await state.maps.run(lambda: tagged(jpeg(found.load(), edge, quality)), request.receive)
        return shown(request, picture, "image/jpeg", v)

    return routes
