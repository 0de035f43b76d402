"""Who may use the server: accepted hosts, no cross-site uploads, the API key; and security headers for browsers."""

import asyncio
import hmac
from collections.abc import Mapping
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skypart.hosts import host_name, is_own_origin
from skypart.serve.errors import HttpError, log
from skypart.serve.options import DISCARD_SECONDS, ServeOptions

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
KEY_PROTECTED = ("/v1/", "/tiles/", "/metrics")
"""Path prefixes that need the API key, if there is one."""


class SecurityMiddleware:
    """ASGI middleware: rejects forbidden requests, adds security headers, and answers 500 if the application fails."""

    def __init__(self, app: ASGIApp, options: ServeOptions, headers: Mapping[str, str] = SECURITY_HEADERS) -> None:
        self._app = app
        self._hosts = options.accepted_hosts()
        self._key = options.api_key.encode() if options.api_key else None
        self._headers = headers
        self._max_bytes = options.max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope)
        started, unread = False, "transfer-encoding" in asked or asked.get("content-length", "0") != "0"

        async def receive_body() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and bool(message.get("more_body", False))
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                if unread:  # the rest is never read, so the client must not send its next request here
                    headers["Connection"] = "close"
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        error = self._check(scope["method"], scope["path"], asked)
        if error is not None:
            if unread and "Connection" not in error.headers and "expect" not in asked:
                await self._discard(receive_body)
            await error.response()(scope, receive_body, send_with_headers)
            return
        try:
            await self._app(scope, receive_body, send_with_headers)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            failure = JSONResponse({"detail": "internal server error; see the server's log"}, 500)
            await failure(scope, receive_body, send_with_headers)

    async def _discard(self, receive: Receive) -> None:
        """Drop a body, for clients that send everything before they read: at most an upload and for some seconds."""
        dropped, more = 0, True
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while more and dropped <= self._max_bytes:
                    message = await receive()
                    dropped += len(message.get("body", b""))
                    more = bool(message.get("more_body", False))

    def _check(self, method: str, path: str, headers: Headers) -> HttpError | None:
        """The error that rejects a request; None if it is allowed."""
        if "content-length" in headers and "transfer-encoding" in headers:  # a proxy may see another end of the body
            close = {"Connection": "close"}
            return HttpError(400, "a request has Content-Length or Transfer-Encoding, not both", close)
        name = host_name(headers.get("host", ""))
        if len(headers.getlist("host")) > 1 or not name or (self._hosts is not None and name not in self._hosts):
            shown = name or headers.get("host", "")[:80]
            return HttpError(403, f"this server does not accept the host name {shown!r}; use localhost")
        if method not in ("GET", "HEAD") and not _is_same_site(headers):
            return HttpError(403, "uploads from pages of other sites are not allowed")
        if self._key is not None and path.startswith(KEY_PROTECTED):
            given = headers.get("x-api-key", "").encode("latin-1")
            if not hmac.compare_digest(given, self._key):
                return HttpError(
                    401, "this server requires an API key in the header X-API-Key", {"WWW-Authenticate": "ApiKey"}
                )
        return None


def _is_same_site(headers: Headers) -> bool:
    """Whether a request that changes something comes from our own page, or from no browser at all."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    origins = headers.getlist("origin")
    return all(is_own_origin(origin, headers.get("host", "")) for origin in origins)
