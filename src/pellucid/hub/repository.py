"""Models from a hub repository: found in the cache, or fetched into it.

Order of a fetch: small files, then weights, each linked into the snapshot when it is right; then
the listing is kept, and only then does the revision point to the new commit. An interruption leaves
the model of before, and the bytes received are used by the next attempt.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pellucid.core.errors import BadInput, FetchError
from pellucid.hub.download import download
from pellucid.hub.listing import (
    SHARD_INDEX,
    Listing,
    RepositoryFile,
    is_safe_name,
    load_listing,
    pick_gguf,
    small_files,
    weight_files,
)
from pellucid.hub.names import HubModel
from pellucid.hub.places import RepositoryFolder
from pellucid.hub.progress import Progress
from pellucid.hub.verify import is_intact, remember

LISTING_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Located:
    """A model in the cache, every file of it there in its full size; not yet checked."""

    path: Path
    files: tuple[tuple[Path, RepositoryFile], ...]

    @property
    def size(self) -> int:
        return sum(file.size for _, file in self.files)


def locate(model: HubModel) -> Located | None:
    """Where the cache holds the model whole; None: it does not. Nothing is read but names."""
    folder = RepositoryFolder(model.repo)
    commit = folder.commit_of(model.revision)
    if commit is None:
        return None
    listing = load_listing(model.repo, commit) or _listing_of_snapshot(folder, commit)
    snapshot = folder.snapshot(commit)
    try:
        gguf = pick_gguf(model, (file.name for file in listing.files))
        needed = [gguf] if gguf else _needed(listing, snapshot, str(model))
    except BadInput:
        return None
    files = tuple((snapshot / name, file) for name in needed if (file := listing.get(name)))
    if not all(_has_size(path, file.size) for path, file in files):
        return None
    return Located(snapshot / gguf if gguf else snapshot, files)


def find_cached(model: HubModel, progress: Progress, *, again: bool = False) -> Path | None:
    """The model in the cache, whole and checked; None: not here, or damaged.

    `again` hashes every file whatever the record of the last check says.
    """
    located = locate(model)
    if located is None:
        return None
    for path, file in located.files:
        if not is_intact(path, file.digest, file.size, progress, again=again):
            return None
    return located.path


def fetch(model: HubModel, progress: Progress) -> Path:
    """The newest state of the revision, fetched where it is not here yet.

    Raises `FetchError` (cannot be reached or received) or `BadInput` (no such repository, revision
    or file).
    """
    listing = list_repository(model)
    names = [file.name for file in listing.files]
    folder = RepositoryFolder(model.repo)
    snapshot = folder.snapshot(listing.commit)
    if gguf := pick_gguf(model, names):
        _fetch_file(model.repo, listing, gguf, progress)
    else:
        if "config.json" not in names:
            weight_files(names, None, str(model))
            raise BadInput(f"{model}: the repository holds no config.json")
        for name in small_files(names):
            _fetch_file(model.repo, listing, name, progress)
        for name in _needed(listing, snapshot, str(model)):
            _fetch_file(model.repo, listing, name, progress)
    listing.save()
    folder.remember(model.revision, listing.commit)
    return snapshot / gguf if gguf else snapshot


def fetch_small(model: HubModel, progress: Progress) -> Path:
    """The folder of a model with its configuration and tokenizer and no weights; a GGUF file, where
    the repository holds only those, whole. The model does not count as being here. Raises as
    `fetch`."""
    listing = list_repository(model)
    names = [file.name for file in listing.files]
    if pick_gguf(model, names):
        return fetch(model, progress)
    if "config.json" not in names:
        raise BadInput(f"{model}: the repository holds no config.json")
    for name in small_files(names):
        _fetch_file(model.repo, listing, name, progress)
    return RepositoryFolder(model.repo).snapshot(listing.commit)


def fetch_pinned(repo: str, revision: str, name: str, sha256: str, progress: Progress) -> Path:
    """One file that must have this SHA-256; a repository that offers another one is refused."""
    model = HubModel(repo, revision, file=name)
    listing = list_repository(model)
    file = listing.get(name)
    if file is None:
        raise FetchError(f"{model}: the repository holds no such file")
    if file.digest != sha256:
        raise FetchError(f"{model}: its SHA-256 is {file.digest} and should be {sha256}")
    return fetch(model, progress)


def _needed(listing: Listing, snapshot: Path, label: str) -> list[str]:
    """Every file of a safetensors model; the index, if there is one, must be in `snapshot`."""
    names = [file.name for file in listing.files]
    index = snapshot / SHARD_INDEX if SHARD_INDEX in names else None
    return [*small_files(names), *weight_files(names, index, label)]


def _listing_of_snapshot(folder: RepositoryFolder, commit: str) -> Listing:
    """What another tool has left in the cache: blobs are named by their digests.

    Whether it is everything the repository holds cannot be known; `weight_files` finds missing
    shards, and a model without its tokenizer is not taken for whole.
    """
    snapshot = folder.snapshot(commit)
    files = []
    for path in sorted(snapshot.rglob("*")):
        # One link only: a blob may itself be a link into a store that names files otherwise.
        with suppress(OSError):
            digest = path.readlink().name
            if len(digest) in (40, 64):
                name = path.relative_to(snapshot).as_posix()
                files.append(RepositoryFile(name, path.stat().st_size, digest))
    names = {file.name for file in files}
    whole = "tokenizer.json" in names or any(name.endswith(".gguf") for name in names)
    return Listing(folder.repo, commit, tuple(files) if whole else ())


def list_repository(model: HubModel) -> Listing:
    """Asks the hub. Raises `FetchError` or `BadInput` with the reason in one line."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    transport_error: type[Exception] = HfHubHTTPError.__bases__[0]
    try:
        info = HfApi(endpoint=_endpoint()).model_info(
            model.repo, revision=model.revision, files_metadata=True, timeout=LISTING_TIMEOUT_S
        )
    except GatedRepoError as error:
        raise FetchError(
            f"{model.repo}: its owner asks for consent first: accept the terms on its page, then "
            "set HF_TOKEN or run `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise BadInput(
            f"{model.repo}: the hub has no such repository, or it is private (then set HF_TOKEN)"
        ) from error
    except RevisionNotFoundError as error:
        raise BadInput(f"{model.repo}: it has no revision {model.revision!r}") from error
    except (transport_error, OfflineModeIsEnabled, OSError, ValueError) as error:
        raise FetchError(f"{model.repo}: {_first_line(error)}") from error
    return _read_listing(model.repo, info)


def _read_listing(repo: str, info: object) -> Listing:
    """Checks what the hub has sent: names stay inside the folder, sizes and digests are there."""
    commit = getattr(info, "sha", None)
    if not isinstance(commit, str) or len(commit) != 40 or not commit.isalnum():
        raise FetchError(f"{repo}: the hub did not name a commit")
    files = []
    for sibling in getattr(info, "siblings", None) or ():
        lfs = sibling.lfs
        digest = lfs.sha256 if lfs is not None else sibling.blob_id
        known = isinstance(digest, str) and digest.isalnum() and len(digest) in (40, 64)
        if not known or not isinstance(sibling.size, int) or sibling.size < 0:
            raise FetchError(f"{repo}: the hub gave no size and checksum of {sibling.rfilename!r}")
        if not is_safe_name(sibling.rfilename):
            raise FetchError(f"{repo}: the hub names a file {sibling.rfilename!r}")
        files.append(RepositoryFile(sibling.rfilename, sibling.size, digest))
    return Listing(repo, commit, tuple(files))


def _fetch_file(repo: str, listing: Listing, name: str, progress: Progress) -> None:
    """Makes `name` of the snapshot be there and right."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils._headers import build_hf_headers

    file = listing.get(name)
    if file is None:
        raise FetchError(f"{repo}: the repository holds no {name}")
    folder = RepositoryFolder(repo)
    link = folder.snapshot(listing.commit) / name
    if is_intact(link, file.digest, file.size, progress):
        return
    blob = folder.blob(file.digest)
    if not is_intact(blob, file.digest, file.size, progress):
        blob.unlink(missing_ok=True)
        url = hf_hub_url(repo, name, revision=listing.commit, endpoint=_endpoint())
        download(
            url,
            blob,
            digest=file.digest,
            size=file.size,
            headers=build_hf_headers(library_name="pellucid"),
            progress=progress,
            label=name,
        )
    _link(link, blob)
    remember(link, file.digest)


def _link(link: Path, blob: Path) -> None:
    """Puts a relative link to the blob at `link`, or the blob itself where links are refused."""
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f"{link.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    try:
        temporary.symlink_to(os.path.relpath(blob, link.parent))
    except OSError:
        blob.replace(temporary)
    temporary.replace(link)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _endpoint() -> str | None:
    # Read now: huggingface_hub keeps what it saw when it was first imported.
    return os.environ.get("HF_ENDPOINT") or None


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
