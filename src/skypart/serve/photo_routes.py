"""Routes that take a photo: locate it, draw its parts, apply weather to it."""

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
from skypart.serve.decoder import PhotoDecoder
from skypart.serve.encoded_images import encode_jpeg
from skypart.serve.errors import Problem
from skypart.serve.photo_request import (
    Form,
    LocateForm,
    PhotoForm,
    Upload,
    decode_photo,
    openapi_request_body,
    parse_form,
)
from skypart.serve.schemas import FixAnswer
from skypart.serve.state import ServerState

T = TypeVar("T")

PHOTO_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The form is malformed or has no photo."},
    401: {"model": Problem, "description": "The API key is missing or wrong."},
    408: {"model": Problem, "description": "The photo arrived too slowly."},
    413: {"model": Problem, "description": "The photo is too large."},
    415: {"model": Problem, "description": "Not a JPEG, PNG, WebP or TIFF file."},
    422: {"model": Problem, "description": "A field or the photo is invalid."},
    503: {
        "model": Problem,
        "description": "The queue is full (see Retry-After), or a map cannot be read.",
    },
}


def _image_responses(media_type: str, text: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of a route that returns an image."""
    return {200: {"description": text, "content": {media_type: {}}}, **PHOTO_ERRORS}


def collect_hints(photo: bytes, form: LocateForm, decoder: PhotoDecoder | None = None) -> Hints:
    """Camera hints from the form; what it leaves out, from the photo's own EXIF and XMP."""
    if not form.exif:
        return form.hints()
    facts = decoder.camera_facts(photo) if decoder else read_camera_facts(io.BytesIO(photo))
    return merge_hints(form.hints(), hints_from_facts(facts))


def photo_routes(state: ServerState) -> APIRouter:
    """The routes that take a photo."""
    routes = APIRouter(prefix="/v1", tags=["photos"])

    async def process(
        request: Request, form: type[Form], work: Callable[[RgbImage, Upload, Form], T], edge: int | None = None
    ) -> T:
        """Read photo and form, then run `work` on them in an inference thread. edge: see `decode_photo`."""
        async with state.uploads.receive(request, state.inference_workers) as upload:
            fields = parse_form(form, upload.fields)

            def job() -> T:
                image = decode_photo(upload.photo, fields, state.options.max_pixels, state.decoder, edge)
                return work(image, upload, fields)

            return await state.inference_workers.run(job, request.receive)

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
            **PHOTO_ERRORS,
        },
        openapi_extra=openapi_request_body(LocateForm),
    )
    async def locate(request: Request) -> Response:
        """Compares the photo with every view of the map. All fields but the photo are optional."""

        def work(image: RgbImage, upload: Upload, form: LocateForm) -> tuple[Fix, Hints, LocateForm]:
            hints = collect_hints(upload.photo, form, state.decoder)
            given = None if hints == Hints() else hints
            return state.service.locate(image, upload.name, form.prior(), given), hints, form

        fix, hints, form = await process(request, LocateForm, work, state.service.photo_edge)
        if form.format == "geojson":
            return Response(to_text(fixes_to_features([fix])), media_type="application/geo+json")
        return JSONResponse({**fix_to_dict(fix), "hints": asdict(hints)})

    @routes.post(
        "/parts",
        summary="Draw the parts of a photo",
        response_class=Response,
        responses=_image_responses("image/png", "The photo overlaid with its parts."),
        openapi_extra=openapi_request_body(PhotoForm),
    )
    async def parts(request: Request) -> Response:
        """One colour per part."""
        return Response(
            await process(request, PhotoForm, lambda image, upload, form: state.service.parts(image)),
            media_type="image/png",
        )

    @routes.post(
        "/weather",
        summary="Apply weather to a photo",
        response_class=Response,
        responses=_image_responses("image/jpeg", "The photo as the model sees it, scaled down."),
        openapi_extra=openapi_request_body(PhotoForm),
    )
    async def weather(request: Request) -> Response:
        """The same weather that /v1/locate applies to this photo."""
        return Response(
            await process(request, PhotoForm, lambda image, upload, form: encode_jpeg(image)), media_type="image/jpeg"
        )

    return routes
