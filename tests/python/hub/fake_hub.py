"""A hub on this machine: the two routes that fetching needs, and the ways in which they fail."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Files above this are kept apart by the hub and named by their SHA-256.
LFS_FROM = 1000


def git_blob_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class FakeHub:
    """What the server holds and does; tests change it while it runs."""

    files: dict[str, bytes] = field(default_factory=dict)
    repo: str = "owner/name"
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    # Bytes of a body after which the connection is cut, once for each entry.
    cut_after: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)  # answered instead of a file, one each
    sent_instead: dict[str, bytes] = field(default_factory=dict)
    ignore_range: bool = False
    announced: dict[str, str] = field(default_factory=dict)  # file -> another digest
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range
    authorizations: list[str | None] = field(default_factory=list)
    redirect_to: str | None = None
    api_status: int = 200
    extra_names: list[str] = field(default_factory=list)
    url: str = ""

    def digest(self, name: str) -> str:
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if self.is_lfs(name) else git_blob_sha1(data)

    def is_lfs(self, name: str) -> bool:
        return len(self.files[name]) >= LFS_FROM

    def file_requests(self, name: str) -> list[str | None]:
        """The Range of each request for a file."""
        return [ranged for path, ranged in self.requests if path.endswith(f"/{name}")]

    def listing(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = [self._sibling(name) for name in self.files]
        for name in self.extra_names:
            siblings.append({"rfilename": name, "size": 1, "blobId": git_blob_sha1(b"x")})
        return {"id": self.repo, "modelId": self.repo, "sha": self.commit, "siblings": siblings}

    def _sibling(self, name: str) -> dict[str, object]:
        size = len(self.files[name])
        sibling: dict[str, object] = {"rfilename": name, "size": size, "blobId": "0" * 40}
        digest = self.announced.get(name, self.digest(name))
        if self.is_lfs(name):
            sibling["lfs"] = {"sha256": digest, "size": size, "pointerSize": 134}
        else:
            sibling["blobId"] = digest
        return sibling


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((path, self.headers.get("Range")))
        self.hub.authorizations.append(self.headers.get("Authorization"))
        if path.startswith("/api/models/"):
            self._answer_listing(path)
        else:
            self._answer_file(path)

    def _answer_listing(self, path: str) -> None:
        hub = self.hub
        known = {f"/api/models/{hub.repo}/revision/{name}" for name in (*hub.revisions, hub.commit)}
        if hub.api_status != 200:
            self._send(hub.api_status, b"{}")
        elif not path.startswith(f"/api/models/{hub.repo}"):
            self._send(404, b'{"error": "no"}', {"X-Error-Code": "RepoNotFound"})
        elif path not in known | {f"/api/models/{hub.repo}"}:
            self._send(404, b'{"error": "no"}', {"X-Error-Code": "RevisionNotFound"})
        else:
            self._send(200, json.dumps(hub.listing()).encode())

    def _answer_file(self, path: str) -> None:
        hub = self.hub
        prefix = f"/{hub.repo}/resolve/{hub.commit}/"
        if hub.redirect_to:
            self._send(302, b"", {"Location": hub.redirect_to + path})
        elif hub.statuses:
            self._send(hub.statuses.pop(0), b"not now")
        elif not path.startswith(prefix) or path[len(prefix) :] not in hub.files:
            self._send(404, b"no such file")
        else:
            name = path[len(prefix) :]
            self._send_file(hub.sent_instead.get(name, hub.files[name]))

    def _send_file(self, data: bytes) -> None:
        ranged = self.headers.get("Range")
        if ranged is None or self.hub.ignore_range:
            self._send(200, data)
            return
        start = int(ranged.removeprefix("bytes=").removesuffix("-"))
        if start >= len(data):
            self._send(416, b"")
            return
        content_range = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(206, data[start:], {"Content-Range": content_range})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status in (200, 206) and self.hub.cut_after and "/resolve/" in self.path:
            body = body[: self.hub.cut_after.pop(0)]
            self.close_connection = True
        self.wfile.write(body)


def serve(hub: FakeHub) -> ThreadingHTTPServer:
    """Starts serving `hub` on a free port of 127.0.0.1; the caller shuts it down."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server
