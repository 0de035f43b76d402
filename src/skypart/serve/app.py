"""The FastAPI application: routes, page, security and metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from skypart.serve.assets import STATIC
from skypart.serve.errors import add_error_handlers
from skypart.serve.fly_board import FlyBoard
from skypart.serve.fly_routes import fly_routes
from skypart.serve.map_routes import map_routes
from skypart.serve.metrics import MetricsMiddleware
from skypart.serve.options import ServeOptions
from skypart.serve.photo_routes import photo_routes
from skypart.serve.security import SecurityMiddleware
from skypart.serve.service import LocateService
from skypart.serve.state import ServerState
from skypart.version import __version__

DESCRIPTION = "Find where a drone photo was taken on the map of this index. Latitude and longitude are WGS 84 degrees."


def create_app(service: LocateService, options: ServeOptions | None = None, board: FlyBoard | None = None) -> FastAPI:
    """The API and the page for one index. board: of a live flight, which /fly shows."""
    options = options or ServeOptions()
    state = ServerState(service, options)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        state.close()

    # FastAPI's own documentation pages load scripts from a CDN, so only /openapi.json is served.
    app = FastAPI(
        title="SkyPart", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    app.include_router(photo_routes(state))
    app.include_router(map_routes(state))
    app.include_router(fly_routes(board or FlyBoard()))
    _add_page(app)
    add_error_handlers(app)
    app.add_middleware(SecurityMiddleware, options=options)
    app.add_middleware(MetricsMiddleware, metrics=state.metrics)
    return app


def _add_page(app: FastAPI) -> None:
    """Serve the page and its files; browsers revalidate them on every load."""

    class RevalidatedFiles(StaticFiles):
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

    app.mount("/static", RevalidatedFiles(directory=STATIC), name="static")
