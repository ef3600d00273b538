"""What a hub repository holds at one commit, and which of it a model needs.

A listing is kept in Pellucid's home, so that a later start knows without asking which files make
the model and what their digests are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from pellucid.core.errors import BadInput
from pellucid.hub.names import HubModel
from pellucid.hub.places import home, write_atomically

# Without a wish: what most people run on a CPU, then its neighbours by size.
QUANT_PREFERENCE = (
    "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "IQ4_XS", "IQ4_NL", "Q5_K_M", "Q5_K_S", "Q8_0",
    "Q6_K", "MXFP4", "Q3_K_M", "BF16", "F16", "F32",
)  # fmt: skip

SHARD_INDEX = "model.safetensors.index.json"
_SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "quantize_config.json",  # of old GPTQ and AWQ checkpoints
    "quant_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
_SPLIT = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """`digest` is a SHA-256 (64 digits) or the SHA-1 of the git blob (40)."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Listing:
    repo: str
    commit: str
    files: tuple[RepositoryFile, ...]

    def get(self, name: str) -> RepositoryFile | None:
        return next((file for file in self.files if file.name == name), None)

    def save(self) -> None:
        write_atomically(_listing_path(self.repo, self.commit), json.dumps(asdict(self)))


def load_listing(repo: str, commit: str) -> Listing | None:
    """The listing kept from an earlier fetch; None: there is none, or it cannot be read."""
    try:
        data = json.loads(_listing_path(repo, commit).read_text(encoding="utf-8"))
        files = tuple(RepositoryFile(**file) for file in data["files"])
        return Listing(data["repo"], data["commit"], files)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _listing_path(repo: str, commit: str) -> Path:
    return home() / "listings" / repo.replace("/", "--") / f"{commit}.json"


def is_safe_name(name: str) -> bool:
    """Whether a name from outside stays inside the folder it is put into."""
    path = PurePosixPath(name)
    plain = not path.is_absolute() and "\\" not in name and "\0" not in name and ":" not in name
    return plain and bool(path.parts) and ".." not in path.parts


def pick_gguf(model: HubModel, names: Iterable[str]) -> str | None:
    """The GGUF file meant by `model` among `names`; None: safetensors are meant.

    Raises `BadInput` listing what there is when the wish cannot be met.
    """
    names = sorted(names)
    if model.file:
        if model.file not in names:
            raise BadInput(f"{model}: the repository holds no {model.file}; {_choices(names)}")
        return model.file
    found = _whole_ggufs(names)
    if model.quant:
        return _of_quant(found, model.quant) or _refuse_quant(model, names)
    if "config.json" in names and any(name.endswith(".safetensors") for name in names):
        return None
    if not found:
        return None
    for quant in QUANT_PREFERENCE:
        if name := _of_quant(found, quant):
            return name
    return found[0]


def _whole_ggufs(names: Iterable[str]) -> list[str]:
    """GGUF files that are a model by themselves: no vision projectors, no parts of a split file."""
    ggufs = (name for name in names if name.lower().endswith(".gguf"))
    return [
        name
        for name in ggufs
        if "mmproj" not in name.lower() and not _SPLIT.search(name[: -len(".gguf")])
    ]


def _of_quant(names: Iterable[str], quant: str) -> str | None:
    tag = re.compile(rf"(?:^|[-._/]){re.escape(quant)}\.gguf$", re.IGNORECASE)
    return next((name for name in names if tag.search(name)), None)


def _refuse_quant(model: HubModel, names: list[str]) -> str:
    raise BadInput(f"{model}: the repository holds no {model.quant} file; {_choices(names)}")


def _choices(names: list[str]) -> str:
    found = _whole_ggufs(names)
    if not found:
        return "it holds no GGUF file that stands alone"
    more = f" and {len(found) - 20} more" if len(found) > 20 else ""
    return f"it holds {', '.join(found[:20])}{more}"


def small_files(names: Iterable[str]) -> list[str]:
    """Configuration and tokenizer, and the index of the shards: fetched before any weight."""
    present = set(names)
    return [name for name in (*_SMALL_FILES, SHARD_INDEX) if name in present]


def weight_files(names: Iterable[str], index_path: Path | None, label: str) -> list[str]:
    """The safetensors files of a repository: those its index names, else the single one.

    Raises `BadInput` where there is none, or where the index is not to be trusted.
    """
    present = set(names)
    if index_path is not None:
        return _shards_of(index_path, present, label)
    if "model.safetensors" in present:
        return ["model.safetensors"]
    found = sorted(name for name in present if "/" not in name and name.endswith(".safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise BadInput(
            f"{label}: several safetensors files and no {SHARD_INDEX} to say which belong"
        )
    if any(name.endswith((".bin", ".pt", ".pth")) for name in present):
        raise BadInput(
            f"{label}: its weights are pickle files, which can run code when they are read: "
            "use a repository with safetensors or GGUF files"
        )
    raise BadInput(f"{label}: the repository holds neither safetensors nor GGUF files")


def _shards_of(index_path: Path, present: set[str], label: str) -> list[str]:
    try:
        shards = sorted(set(json.loads(index_path.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise BadInput(f"{label}: {SHARD_INDEX} is damaged: it holds no weight_map") from None
    for shard in shards:
        if not isinstance(shard, str) or not is_safe_name(shard) or shard not in present:
            raise BadInput(f"{label}: {SHARD_INDEX} names {shard!r}, which the repository lacks")
    return shards
