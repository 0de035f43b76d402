"""Addresses that take a photo: where it was taken, its parts, how it looks in other weather."""

import io
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from skypart.bridge.geojson import fixes_to_features, to_text
from skypart.bridge.json_text import fix_to_dict
from skypart.images.decode import RgbImage
from skypart.images.exif import read_camera_facts
from skypart.position.camera import hints_from_facts, merge_hints
from skypart.position.fix import Fix, Hints
from skypart.serve.answers import FixAnswer
from skypart.serve.forms import LocateForm, PhotoForm, read_form, request_body
from skypart.serve.photos import jpeg, read_photo
from skypart.serve.problems import Problem
from skypart.serve.state import State
from skypart.serve.uploads import Upload

T = TypeVar("T")
Form = TypeVar("Form", bound=PhotoForm)

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "Not a proper form, or no photo in it."},
    401: {"model": Problem, "description": "The key is missing or wrong."},
    408: {"model": Problem, "description": "The photo arrived too slowly."},
    413: {"model": Problem, "description": "The photo has too many bytes."},
    415: {"model": Problem, "description": "Not a JPEG, PNG, WebP or TIFF file."},
    422: {"model": Problem, "description": "A field or the photo cannot be used."},
    503: {
        "model": Problem,
        "description": "The queue is full (Retry-After: how long), or a map cannot be read.",
    },
}


def picture(media_type: str, text: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of an answer that is a picture."""
    return {200: {"description": text, "content": {media_type: {}}}, **REFUSALS}


def known_hints(photo: bytes, form: LocateForm) -> Hints:
    """What the form says of the camera; where it is silent, what the photo says of itself."""
    own = hints_from_facts(read_camera_facts(io.BytesIO(photo))) if form.exif else Hints()
    return merge_hints(form.hints(), own)


def photo_routes(state: State) -> APIRouter:
    """The addresses that take a photo."""
    routes = APIRouter(prefix="/v1", tags=["photos"])

    async def work_on(request: Request, form: type[Form], work: Callable[[RgbImage, Upload, Form], T]) -> T:
        """Read photo and form, then do `work` on them in an inference thread."""
        async with state.uploads.receive(request, state.inference) as upload:
            fields = read_form(form, upload.fields)

            def job() -> T:
                return work(read_photo(upload.photo, fields, state.options.max_pixels), upload, fields)

            return await state.inference.run(job, request.receive)

    @routes.post(
        "/locate",
        summary="Find where a photo was taken",
        response_class=Response,
        responses={
            200: {
                "model": FixAnswer,
                "description": "A fix with its error radius, or found = false with the reason.",
                "content": {"application/geo+json": {}},
            },
            **REFUSALS,
        },
        openapi_extra=request_body(LocateForm),
    )
    async def locate(request: Request) -> Response:
        """The photo is compared with every view of the map. Fields that are known help, none is needed."""

        def work(image: RgbImage, upload: Upload, form: LocateForm) -> tuple[Fix, Hints, LocateForm]:
            hints = known_hints(upload.photo, form)
            given = None if hints == Hints() else hints
            return state.service.locate(image, upload.name, form.prior(), given), hints, form

        fix, hints, form = await work_on(request, LocateForm, work)
        if form.format == "geojson":
            return Response(to_text(fixes_to_features([fix])), media_type="application/geo+json")
        return JSONResponse({**fix_to_dict(fix), "hints": asdict(hints)})

    @routes.post(
        "/parts",
        summary="Draw the parts of a photo",
        response_class=Response,
        responses=picture("image/png", "The photo with its parts over it."),
        openapi_extra=request_body(PhotoForm),
    )
    async def parts(request: Request) -> Response:
        """One colour a part, framed as the photo is."""
        return Response(
            await work_on(request, PhotoForm, lambda image, upload, form: state.service.parts(image)),
            media_type="image/png",
        )

    @routes.post(
        "/weather",
        summary="Put a photo under weather",
        response_class=Response,
        responses=picture("image/jpeg", "The photo as the model sees it, scaled down."),
        openapi_extra=request_body(PhotoForm),
    )
    async def weather(request: Request) -> Response:
        """The same drops and flakes that /v1/locate puts on this photo."""
        return Response(
            await work_on(request, PhotoForm, lambda image, upload, form: jpeg(image)), media_type="image/jpeg"
        )

    return routes
