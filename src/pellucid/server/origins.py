"""Origins: which web pages may use the server.

A browser lets any page send a request to any address, a server on the user's own machine included;
what it tells the server is the page's origin. So a request that names one is answered only if the
page came from this server itself or from an origin that was allowed. Programs name none.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from pellucid.server.errors import ApiError

ANY: Final = "*"
_RECORDS: Final = "/live/"
_EXPOSED: Final = ("X-Request-Id", "X-Pellucid-Ignored", "X-Pellucid-Replica", "Retry-After")


class Origins:
    """Refuses what pages from elsewhere ask, and lets browsers show the answers to allowed ones.

    allowed: origins such as `https://chat.example`; `*` is every one. with_keys: whether a key is
    asked for. Without one, "this server itself" is believed of a number or `localhost` alone: any
    other name may be one that its owner points here (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str], *, with_keys: bool) -> None:
        self._app = app
        self._allowed = frozenset(allowed)
        self._with_keys = with_keys
        self._shared = CORSMiddleware(
            app,
            allow_origins=list(allowed),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=list(_EXPOSED),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        origin = headers.get("origin")
        if origin is None and scope["type"] == "http" and self._is_strange(scope["path"], headers):
            error = ApiError(
                403,
                "records are told under a number or localhost, or to who has a key: any other name "
                "may be one that its owner points here. Start the server with --api-key, or with "
                "--allowed-origins and the address of the pages",
            )
            await error.response(scope["path"])(scope, receive, send)
        elif origin is None:
            await self._app(scope, receive, send)
        elif origin in self._allowed or ANY in self._allowed:
            await self._shared(scope, receive, send)
        elif self._is_own(origin, headers.get("host", "")):
            await self._app(scope, receive, send)
        else:
            error = ApiError(
                403,
                f"pages of {origin[:200]!r} may not use this server: "
                "allow them with --allowed-origins",
            )
            await error.response(scope["path"])(scope, receive, send)

    def _is_strange(self, path: str, headers: Headers) -> bool:
        """Whether records are asked for under a name that may be anybody's: a page reads what it
        takes for its own without telling an origin."""
        if self._with_keys or ANY in self._allowed or not path.startswith(_RECORDS):
            return False
        host = headers.get("host", "")
        try:
            named = urlsplit(f"//{host}").hostname or ""
            allowed = {urlsplit(origin).netloc for origin in self._allowed}
        except ValueError:
            return True
        return not (_is_fixed(named) or host in allowed)

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            page = urlsplit(origin)
            name = page.hostname or ""
        except ValueError:
            return False
        return bool(host) and page.netloc == host and (self._with_keys or _is_fixed(name))


def _is_fixed(name: str) -> bool:
    """Whether nobody else can make `name` mean this machine."""
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
