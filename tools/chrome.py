"""A headless Chromium over its own debugging protocol, by two pipes: no port, no driver."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--mute-audio",
    "--remote-debugging-pipe",
)
PATIENCE_S = 60.0


def find_browser() -> str | None:
    """The path of a Chromium, None where there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


class Chrome:
    """One browser process. `page()` opens a tab."""

    def __init__(self, path: str) -> None:
        self._profile = tempfile.TemporaryDirectory(
            prefix="pellucid-chrome-", ignore_cleanup_errors=True
        )
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]

        def place() -> None:  # in the child: the protocol's pipes are file descriptors 3 and 4
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        self._process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=place,
            pass_fds=(3, 4),
        )
        for fd in (theirs_in, theirs_out, *theirs):
            os.close(fd)
        self._number = 0
        self._sending = threading.Lock()
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The result of a command. Raises `RuntimeError` with what the browser says is wrong."""
        answer: queue.Queue[dict[str, Any]] = queue.Queue()
        with self._sending:
            self._number += 1
            number = self._number
            self._answers[number] = answer
            message: dict[str, Any] = {"id": number, "method": method, "params": params}
            if session is not None:
                message["sessionId"] = session
            os.write(self._out, json.dumps(message).encode() + b"\0")
        try:
            told = answer.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise RuntimeError(f"{method}: the browser does not answer") from None
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error']['message']}")
        return told["result"]

    def page(self, width: int = 1440, height: int = 900) -> Page:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        self._listeners[session] = page.heard
        page.begin(width, height)
        return page

    def close(self) -> None:
        with contextlib.suppress(RuntimeError, OSError):
            self.send("Browser.close")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        self._profile.cleanup()

    def _read(self) -> None:
        rest = b""
        while chunk := os.read(self._in, 1 << 16):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in messages:
                self._take(json.loads(message))
        os.close(self._in)

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers.pop(message["id"]).put(message)
        elif (listener := self._listeners.get(message.get("sessionId", ""))) is not None:
            listener(message["method"], message["params"])


class Page:
    """A tab. `errors`: what its console and code complained of; `requests`: URLs it asked for."""

    def __init__(self, chrome: Chrome, target: str, session: str) -> None:
        self._chrome = chrome
        self._target = target
        self._session = session
        self.errors: list[str] = []
        self.requests: list[str] = []

    def begin(self, width: int, height: int) -> None:
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)
        self.send("Page.bringToFront")
        self.resize(width, height)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._chrome.send(method, self._session, **params)

    def heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", "")
            self.errors.append(f"{details['text']} {thrown}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            said = [str(arg.get("value", arg.get("description"))) for arg in params["args"]]
            self.errors.append(" ".join(said))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            self.errors.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def prefer(self, **features: str) -> None:
        """Media features, such as `prefers_color_scheme="dark"`."""
        given = [{"name": n.replace("_", "-"), "value": v} for n, v in features.items()]
        self.send("Emulation.setEmulatedMedia", features=given)

    def goto(self, url: str) -> None:
        """Opens `url`, and waits until its modules have run."""
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression: str) -> Any:
        """The value of an expression, awaited if it is a promise. Raises `RuntimeError`."""
        told = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in told:
            details = told["exceptionDetails"]
            said = details.get("exception", {}).get("description", details["text"])
            raise RuntimeError(f"{expression[:200]}: {said}")
        return told["result"].get("value")

    def until(self, expression: str, patience_s: float = PATIENCE_S) -> Any:
        """Waits for an expression to be true; its value."""
        end = time.monotonic() + patience_s
        while True:
            with contextlib.suppress(RuntimeError):  # a page that is being left
                if value := self.run(expression):
                    return value
            if time.monotonic() > end:
                raise AssertionError(f"in vain waited for {expression}; errors: {self.errors}")
            time.sleep(0.03)

    def press(self, key: str) -> None:
        text = {"Enter": "\r", " ": " "}.get(key)
        down: dict[str, Any] = {
            "key": key,
            "code": key,
            "windowsVirtualKeyCode": _CODES.get(key, 0),
        }
        if text:
            down["text"] = text
        self.send("Input.dispatchKeyEvent", type="keyDown", **down)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def move(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, x0: float, y: float, x1: float) -> None:
        self.move(x0, y)
        mouse = {"button": "left", "clickCount": 1, "buttons": 1}
        self.send("Input.dispatchMouseEvent", type="mousePressed", x=x0, y=y, **mouse)
        for i in range(1, 6):
            x = x0 + (x1 - x0) * i / 5
            self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, **mouse)
        self.send("Input.dispatchMouseEvent", type="mouseReleased", x=x1, y=y, **mouse)

    def put_file(self, selector: str, path: Path) -> None:
        """Chooses a file in a file input."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def drop_file(self, x: float, y: float, path: Path, *, let_go: bool = True) -> None:
        """Drags a file over the page, and lets it go there or takes it away again."""
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop" if let_go else "dragCancel"):
            self.send("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        told = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))

    def close(self) -> None:
        self._chrome.send("Target.closeTarget", targetId=self._target)


_CODES = {
    "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "Tab": 9,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip
