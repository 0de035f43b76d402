"""Routes of a live flight: its page, its state and its last frame."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse

from skypart.serve.assets import STATIC
from skypart.serve.encoded_images import encode_jpeg
from skypart.serve.errors import HttpError, Problem
from skypart.serve.fly_board import FlyBoard

FRAME_EDGE = 640


def fly_routes(board: FlyBoard) -> APIRouter:
    """The routes of one flight; without a flight the state says so."""
    routes = APIRouter()

    @routes.get("/fly", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "fly.html", headers={"Cache-Control": "no-cache"})

    @routes.get("/v1/fly", tags=["flight"], summary="The state of a live flight")
    async def state(
        after: Annotated[int, Query(ge=0, description="Number of the last point of the path already known.")] = 0,
    ) -> dict[str, Any]:
        """`flying` is false if this server follows no flight; `skypart fly --page PORT` does."""
        return board.snapshot(after)

    @routes.get(
        "/v1/fly/frame.jpg",
        tags=["flight"],
        summary="The last located frame",
        response_class=Response,
        responses={
            200: {"description": "The frame.", "content": {"image/jpeg": {}}},
            404: {"model": Problem, "description": "No frame yet."},
        },
    )
    def frame() -> Response:
        image = board.frame
        if image is None:
            raise HttpError(404, "no frame was located yet; start a flight with skypart fly --page")
        return Response(encode_jpeg(image, FRAME_EDGE, 80), media_type="image/jpeg")

    return routes
