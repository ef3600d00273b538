"""The guide as plain files: what a running server shows, with its answers kept beside it.

    python tools/build_guide.py OUT [MODEL]

A server is started on this machine. Each chapter is fetched from it, each live figure's question is
asked of it, and its answers are written into the pages; figures there say that they are recorded.
The modules are put together into one script, so that pages that are opened from a disk work. Where
there are a Chromium and ffmpeg, the front page is filmed while it draws answers (record_clip.py).
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

WEB = Path(__file__).parent.parent / "src" / "pellucid" / "server" / "web"
CLIP = WEB.parent / "guide" / "chapters" / "assets" / "video" / "answers.mp4"
START_SECONDS = 120
_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (const|class|function\*?|async function\*?) (\w+)", re.MULTILINE)
_LINKS = (
    (r'href="/guide"', 'href="index.html"'),
    (r'href="/guide/([a-z-]+)"', r'href="\1.html"'),
    (r'src="/guide/assets/', 'src="assets/'),
    (r'href="/web/', 'href="web/'),
    (r'type="module" src="/web/guide/main.js"', 'defer src="guide.js"'),
)


def write(server: Server, model: str, out: Path) -> int:
    """The guide of a running server as files under `out`, which is made anew; how many chapters."""
    kept = recorded(server, model)
    pages = {"index": server.text("/guide")}
    names = re.findall(r'<li><a href="/guide/([a-z-]+)"', pages["index"])
    pages |= {name: server.text(f"/guide/{name}") for name in names}
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name, page in pages.items():
        (out / f"{name}.html").write_text(as_file(page, kept), "utf-8")
    (out / "guide.js").write_text(bundle(WEB / "guide" / "main.js"), "utf-8")
    for name in ("base.css", "icon.svg", "guide/guide.css"):
        (out / "web" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(WEB / name, out / "web" / name)
    assets = WEB.parent / "guide" / "chapters" / "assets"
    if assets.is_dir():
        shutil.copytree(assets, out / "assets")
    return len(names)


class Server:
    """A server that listens at `address`."""

    def __init__(self, address: str) -> None:
        self.address = address

    def text(self, path: str, body: Any = None) -> str:
        with self._open(path, body) as response:
            return str(response.read().decode())

    def json(self, path: str, body: Any = None) -> Any:
        return json.loads(self.text(path, body))

    def streamed(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Tokens as the figures have them, with the milliseconds at which each came."""
        began, tokens = time.perf_counter(), []
        with self._open("/v1/completions", body) as response:
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                ms = 1000 * (time.perf_counter() - began)
                given = json.loads(line[6:])["choices"][0]["logprobs"] or {"tokens": []}
                for i, text in enumerate(given["tokens"]):
                    tokens.append({"ms": ms, "text": text, "logprob": given["token_logprobs"][i]})
        return tokens

    def _open(self, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.urlopen(self.address + path, data, timeout=120)


@contextlib.contextmanager
def served(model: str) -> Iterator[Server]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "pellucid", "serve", model, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = Server(f"http://127.0.0.1:{port}")
    try:
        wait_for(server, process)
        yield server
    finally:
        process.terminate()
        process.wait()


def wait_for(server: Server, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            server.text("/health")
            return
        time.sleep(0.2)
    raise SystemExit("the server did not start: run `pellucid serve` to see why")


def recorded(server: Server, model: str) -> dict[str, Any]:
    """Every live figure's first question and its answer."""
    source = (WEB / "guide" / "defaults.js").read_text("utf-8")
    defaults = json.loads(source.split("DEFAULTS = ")[1].rstrip().rstrip(";"))
    answers: dict[str, Any] = {}
    for path, body in (
        ("/tokenize/pieces", {"prompt": defaults["text"], "merges": True}),
        ("/guide/look", {"prompt": defaults["prompt"]}),
        ("/guide/look", {"prompt": defaults["sentence"]}),
        (
            "/v1/completions",
            {"prompt": defaults["sample"], "max_tokens": 1, "temperature": 0, "logprobs": 20},
        ),
    ):
        answers[key_of(path, body)] = server.json(path, body)
    answers["/live/about"] = server.json("/live/about")
    for prompt in (defaults["short"], defaults["long"]):
        body = completion(prompt, defaults["tokens"])
        answers[key_of("/v1/completions", body)] = server.streamed(body)
    answers["batching"] = [batch(server, defaults, many) for many in defaults["batches"]]
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"at": today, "model": model, "answers": answers}


def completion(prompt: str, tokens: int) -> dict[str, Any]:
    """As `completion` of ask.js: the key is its text."""
    return {
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "logprobs": 5,
        "ignore_eos": True,
        "stream": True,
    }


def batch(server: Server, defaults: dict[str, Any], many: int) -> dict[str, Any]:
    """As `together` of batching.js."""
    bodies = [completion(f"{defaults['short']} {i}", defaults["tokens"]) for i in range(many)]
    began = time.perf_counter()
    with ThreadPoolExecutor(many) as pool:
        answers = list(pool.map(server.streamed, bodies))
    seconds = time.perf_counter() - began
    gaps = [(one[-1]["ms"] - one[0]["ms"]) / max(1, len(one) - 1) for one in answers]
    return {"many": many, "rate": sum(map(len, answers)) / seconds, "gap": sum(gaps) / many}


def key_of(path: str, body: dict[str, Any]) -> str:
    """As `keyOf` of ask.js."""
    return f"{path} {json.dumps(body, separators=(',', ':'), ensure_ascii=False)}"


def as_file(page: str, kept: dict[str, Any]) -> str:
    """A page that asks nobody: links to files beside it, and the answers in it."""
    for pattern, replacement in _LINKS:
        page = re.sub(pattern, replacement, page)
    data = json.dumps(kept, ensure_ascii=False).replace("<", "\\u003c")
    return page.replace(
        "</head>", f'<script type="application/json" id="recorded">{data}</script>\n</head>', 1
    )


def bundle(entry: Path) -> str:
    """A module and all that it imports as one script, each in a scope of its own."""
    order: list[Path] = []

    def visit(path: Path) -> None:
        if path in order:
            return
        for _, name in _IMPORT.findall(path.read_text("utf-8")):
            visit((path.parent / name).resolve())
        order.append(path)

    visit(entry.resolve())
    return '"use strict";\n' + "".join(_scope(path, order) for path in order)


def _scope(path: Path, order: list[Path]) -> str:
    source = path.read_text("utf-8")
    exported = [name for _, name in _EXPORT.findall(source)]

    def bound(match: re.Match[str]) -> str:
        number = order.index((path.parent / match[2]).resolve())
        return f"const {{{match[1].replace(' as ', ': ')}}} = module{number};\n"

    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(bound, source))
    number = order.index(path)
    return (
        f"const module{number} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"
    )


def clip(server: Server) -> None:
    """The clip that a chapter shows, made anew; said where it cannot be made."""
    from record_clip import missing, record  # beside this file

    CLIP.unlink(missing_ok=True)
    if lacking := missing():
        print(f"no clip: {lacking} is not here")
        return
    try:
        print(f"{CLIP.name}: {record(server.address, CLIP)} bytes")
    except (RuntimeError, AssertionError) as error:
        print(f"no clip: {error}")


def main(out: Path, model: str) -> None:
    with served(model) as server:
        clip(server)  # before a chapter is asked for: its page has the clip if there is one then
        chapters = write(server, model, out)
    print(f"{out / 'index.html'}: {chapters} chapters")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "smollm2-135m")
