"""Where fetched models lie on this machine, and whether fetching is allowed at all.

Two places:

- The Hugging Face cache (`HF_HUB_CACHE`, `HF_HOME`): everything that comes from the hub, in the
  hub's own layout, so that a model another tool has fetched is not fetched again, and the reverse.
- Pellucid's home (`PELLUCID_HOME`, else the platform's cache folder): models from other sources,
  what is known of each file's checksum, and locks.

Layout of a hub repository (https://huggingface.co/docs/huggingface_hub/guides/manage-cache):

    models--OWNER--NAME/blobs/DIGEST               the bytes, named by their digest
    models--OWNER--NAME/snapshots/COMMIT/FILE      a link to a blob
    models--OWNER--NAME/refs/REVISION              holds the commit of a branch or tag
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pellucid.hub.progress import Progress

OFFLINE_VARIABLES = ("PELLUCID_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = {"1", "true", "yes", "on"}
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_offline(flag: bool = False) -> bool:
    """Whether fetching is forbidden, by the caller or by the environment."""
    return flag or any(os.environ.get(name, "").lower() in _TRUE for name in OFFLINE_VARIABLES)


def home() -> Path:
    """Pellucid's own folder. `PELLUCID_HOME`, else the platform's folder for caches."""
    if chosen := os.environ.get("PELLUCID_HOME"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pellucid"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "pellucid"
    return _xdg_cache() / "pellucid"


def hub_cache() -> Path:
    """The Hugging Face cache, by the same rules as `huggingface_hub` (whose import is slow)."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if chosen := os.environ.get(name):
            return _expanded(chosen)
    if chosen := os.environ.get("HF_HOME"):
        return _expanded(chosen) / "hub"
    return _xdg_cache() / "huggingface" / "hub"


def _xdg_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(path)).expanduser()


@dataclass(frozen=True, slots=True)
class RepositoryFolder:
    """One hub repository in the Hugging Face cache."""

    repo: str

    @property
    def root(self) -> Path:
        return hub_cache() / f"models--{self.repo.replace('/', '--')}"

    def blob(self, digest: str) -> Path:
        return self.root / "blobs" / digest

    def snapshot(self, commit: str) -> Path:
        return self.root / "snapshots" / commit

    def commit_of(self, revision: str) -> str | None:
        """The commit a revision stood for when it was last fetched; None: never."""
        if _COMMIT.fullmatch(revision):
            return revision if self.snapshot(revision).is_dir() else None
        try:
            commit = (self.root / "refs" / revision).read_text().strip()
        except (OSError, UnicodeDecodeError):
            return None
        return commit if _COMMIT.fullmatch(commit) else None

    def remember(self, revision: str, commit: str) -> None:
        """From now on `revision` means `commit`."""
        if revision != commit:
            write_atomically(self.root / "refs" / revision, commit)


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(name: str, progress: Progress) -> Iterator[None]:
    """Holds a lock among all processes, so that two never fetch the same model at once."""
    from filelock import FileLock, Timeout

    path = home() / "locks" / f"{name.replace('/', '--')}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.note(f"Another process is fetching {name}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
