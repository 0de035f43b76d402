"""The application: addresses, page, guard and counts put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from skypart.serve.assets import STATIC
from skypart.serve.guard import Guard
from skypart.serve.map_routes import map_routes
from skypart.serve.metrics import Meter
from skypart.serve.options import ServeOptions
from skypart.serve.photo_routes import photo_routes
from skypart.serve.problems import handle_problems
from skypart.serve.service import LocateService
from skypart.serve.state import State
from skypart.version import __version__

DESCRIPTION = "Find where a drone photo was taken on the map of this index. Latitude and longitude are WGS 84 degrees."


def serve_app(service: LocateService, options: ServeOptions | None = None) -> FastAPI:
    """The API and the page over one index."""
    options = options or ServeOptions()
    state = State(service, options)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        state.close()

    # Its own documentation pages would fetch scripts from elsewhere; /openapi.json is all that is served of them.
    app = FastAPI(
        title="SkyPart", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None, lifespan=life
    )
    app.include_router(photo_routes(state))
    app.include_router(map_routes(state))
    _serve_page(app)
    handle_problems(app)
    app.add_middleware(Guard, options=options)
    app.add_middleware(Meter, metrics=state.metrics)
    return app


def _serve_page(app: FastAPI) -> None:
    """The page and its files, checked for changes by the browser every time."""

    class Fresh(StaticFiles):
        def file_response(self, *args: object, **kwargs: object) -> Response:
            response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
            response.headers["Cache-Control"] = "no-cache"
            return response

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon(request: Request) -> FileResponse:
        return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")

    app.mount("/static", Fresh(directory=STATIC), name="static")
