"""A clip of the front page while it draws answers, for the guide.

    python tools/record_clip.py URL OUT.mp4

Several requests of different lengths are asked of a server that listens at URL, and a headless
Chromium's pictures of the waterfall and the batch strip become a film, at the pace at which they
were taken. Needs a Chromium and ffmpeg (Debian has both); where one is missing there is no clip,
and the guide leaves its place out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from chrome import Chrome, Page, find_browser

SIZE = (900, 690)
EVERY_S = 0.12
REST_S = 1.2  # the last picture stays, so that it can be read
MOST_BYTES = 400_000
MOST_PICTURES = 200
# Tokens of each answer, and when it is asked for, in seconds.
ASKED = ((90, 0.3), (30, 0.3), (60, 0.8), (24, 1.4), (48, 2.0))
QUESTION = "Write a short note on rivers, number {}."
ONLY = ("waterfall", "batch")
ALONE = """(names) => {
  const figures = [...document.querySelectorAll(".figure")];
  const rest = [".top", ".side", ".intro", ".figures > h2", ".segments", ".legend"];
  for (const name of rest) for (const node of document.querySelectorAll(name)) node.hidden = true;
  for (const node of figures) node.hidden = !names.includes(node.id.replace("figure-", ""));
  document.querySelector(".page").style.gridTemplateColumns = "minmax(0, 1fr)";
  scrollTo(0, 0);
}"""


def missing() -> str | None:
    """What there is no clip without, None where all is there."""
    if find_browser() is None:
        return "a Chromium"
    return None if shutil.which("ffmpeg") else "ffmpeg"


def record(url: str, out: Path) -> int:
    """Films the page of the server at `url`; the bytes of the clip. Raises `RuntimeError`."""
    browser = find_browser()
    if browser is None:
        raise RuntimeError("there is no Chromium here")
    with tempfile.TemporaryDirectory() as folder:
        chrome = Chrome(browser)
        try:
            pictures = film(chrome.page(*SIZE), url, Path(folder))
        finally:
            chrome.close()
        out.parent.mkdir(parents=True, exist_ok=True)
        for quality in (26, 32, 38):
            encode(pictures, Path(folder), out, quality)
            if out.stat().st_size <= MOST_BYTES:
                return out.stat().st_size
    out.unlink()
    raise RuntimeError(f"the clip would have more than {MOST_BYTES} bytes")


def film(page: Page, url: str, folder: Path) -> list[tuple[Path, float]]:
    """Pictures until every answer has ended, each with when it was taken."""
    page.prefer(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    page.goto(url)
    page.until("globalThis.pellucid !== undefined && pellucid.app.feed.state === 'live'")
    page.run(f"({ALONE})({json.dumps(ONLY)})")
    asking = [
        threading.Thread(target=ask, args=(url, number, *one)) for number, one in enumerate(ASKED)
    ]
    for thread in asking:
        thread.start()
    pictures: list[tuple[Path, float]] = []
    while any(thread.is_alive() for thread in asking) and len(pictures) < MOST_PICTURES:
        began = time.monotonic()
        pictures.append((take(page, folder, len(pictures)), began))
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))
    for thread in asking:
        thread.join()
    page.until(f"pellucid.app.store.requests.filter((r) => r.sent).length >= {len(ASKED)}")
    pictures.append((take(page, folder, len(pictures)), time.monotonic()))
    return pictures


def take(page: Page, folder: Path, number: int) -> Path:
    path = folder / f"{number:04}.png"
    page.screenshot(path, whole=False)
    return path


def ask(url: str, number: int, tokens: int, after_s: float) -> None:
    time.sleep(after_s)
    body = {
        "prompt": QUESTION.format(number),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    address = f"{url.rstrip('/')}/v1/completions"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=120).read()


def encode(pictures: list[tuple[Path, float]], folder: Path, out: Path, quality: int) -> None:
    """H.264, which every browser plays; each picture lasts as long as it did. Raises
    `RuntimeError` with what ffmpeg says."""
    lines = ["ffconcat version 1.0"]
    ends = [at for _, at in pictures[1:]] + [pictures[-1][1] + REST_S]
    for (path, at), end in zip(pictures, ends, strict=True):
        lines += [f"file {path.name}", f"duration {end - at:.3f}"]
    lines.append(f"file {pictures[-1][0].name}")
    listing = folder / "pictures.txt"
    listing.write_text("\n".join(lines) + "\n")
    command = [
        *("ffmpeg", "-y", "-v", "error", "-f", "concat", "-i", str(listing)),
        *("-vf", "fps=10,format=yuv420p", "-c:v", "libx264", "-crf", str(quality)),
        *("-preset", "slow", "-movflags", "+faststart", "-an", str(out)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"ffmpeg: {done.stderr.strip()[-300:]}")


if __name__ == "__main__":
    print(f"{sys.argv[2]}: {record(sys.argv[1], Path(sys.argv[2]))} bytes")
