"""What is known and what is here: the rows of `pellucid list`. Nothing is fetched or hashed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pellucid.hub.catalogue import CATALOGUE, Alias, Pinned
from pellucid.hub.names import HubModel, parse_hub_id
from pellucid.hub.places import hub_cache
from pellucid.hub.repository import locate
from pellucid.hub.resolver import on_hub, own_path


@dataclass(frozen=True, slots=True)
class ListedModel:
    """`path` and `size` (bytes on disk) are None for a model of the catalogue that is not here.
    `damaged`: its file has another size than it should, and is fetched anew when it is used."""

    name: str
    title: str
    licence: str
    source: str
    path: Path | None
    size: int | None
    damaged: bool = False


def list_models() -> list[ListedModel]:
    """The catalogue, then every other model in the Hugging Face cache that is there whole."""
    rows = [_catalogue_row(entry) for entry in CATALOGUE.values()]
    known = {row.path for row in rows}
    for folder in sorted(hub_cache().glob("models--*--*")):
        _, owner, name = folder.name.split("--", 2)
        rows += [row for row in _cached_rows(f"{owner}/{name}", folder) if row.path not in known]
    return rows


def _catalogue_row(entry: Pinned | Alias) -> ListedModel:
    if isinstance(entry, Alias):
        return _row(entry, entry.hub_id, parse_hub_id(entry.hub_id))
    own = own_path(entry)
    size = own.stat().st_size if own.is_file() else None
    from_hub = _row(entry, str(on_hub(entry)), on_hub(entry))
    if size is None or (size != entry.size and from_hub.path):
        return from_hub
    source, damaged = entry.wheel.requirement, size != entry.size
    return ListedModel(entry.name, entry.title, entry.licence, source, own, size, damaged)


def _row(entry: Pinned | Alias, source: str, model: HubModel) -> ListedModel:
    located = locate(model)
    path, size = (located.path, located.size) if located else (None, None)
    return ListedModel(entry.name, entry.title, entry.licence, source, path, size)


def _cached_rows(repo: str, folder: Path) -> Iterator[ListedModel]:
    revisions = sorted(path.name for path in folder.glob("refs/*") if path.is_file())
    if not revisions:
        revisions = sorted(path.name for path in folder.glob("snapshots/*"))
    for revision in revisions:
        for model in _models_of(repo, revision, folder):
            if located := locate(model):
                name = str(model)
                yield ListedModel(name, "", "", name, located.path, located.size)


def _models_of(repo: str, revision: str, folder: Path) -> Iterator[HubModel]:
    commit_folders = sorted(folder.glob("snapshots/*"))
    ggufs = {
        path.relative_to(root).as_posix()
        for root in commit_folders
        for path in root.rglob("*.gguf")
    }
    yield from (HubModel(repo, revision, file=name) for name in sorted(ggufs))
    if any(path for root in commit_folders for path in root.glob("config.json")):
        yield HubModel(repo, revision)
