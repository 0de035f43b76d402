"""Who may ask: the names the server answers to, requests from other sites, the key; and headers that browsers heed."""

import hmac
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skypart.serve.options import ServeOptions
from skypart.serve.problems import RefusedError, log

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
KEYED = ("/v1/", "/tiles/", "/metrics")


def host_name(header: str) -> str:
    """The name in a Host header, without port and the brackets of IPv6, in lower case."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


class Guard:
    """ASGI layer: refuses who may not ask, adds the headers, and answers 500 where the application failed."""

    def __init__(self, app: ASGIApp, options: ServeOptions, headers: Mapping[str, str] = HEADERS) -> None:
        self._app = app
        self._names = options.answers_to()
        self._key = options.api_key.encode() if options.api_key else None
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        if refusal is not None:
            await refusal.response()(scope, receive, guarded)
            return
        try:
            await self._app(scope, receive, guarded)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise
            problem = JSONResponse({"detail": "the server failed; its log says why"}, 500)
            await problem(scope, receive, guarded)

    def _refusal(self, method: str, path: str, headers: Headers) -> RefusedError | None:
        name = host_name(headers.get("host", ""))
        if self._names is not None and name not in self._names:
            return RefusedError(403, f"this server does not answer to the name {name!r}; ask it as localhost")
        if method not in ("GET", "HEAD") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return RefusedError(403, "photos are not taken from pages of other sites")
        if self._key is not None and path.startswith(KEYED):
            given = headers.get("x-api-key", "").encode("latin-1")
            if not hmac.compare_digest(given, self._key):
                return RefusedError(
                    401, "this server wants a key in the header X-API-Key", {"WWW-Authenticate": "ApiKey"}
                )
        return None
