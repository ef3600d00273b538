"""Where chat templates come from: a model's own file, or its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.core.errors import BadInput, FormatError
from pellucid.text.config_files import read_object, read_text
from pellucid.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pellucid.text.chat import ChatTemplate

DEFAULT = "default"
TOOL_USE = "tool_use"
_GGUF_KEY = "tokenizer.chat_template"


@dataclass(frozen=True)
class ChatTemplates:
    """A model's templates by name; `default` is the unnamed one."""

    sources: Mapping[str, str]
    origin: Path

    def __bool__(self) -> bool:
        return bool(self.sources)

    def choose(
        self, tokenizer: Tokenizer, name: str | None = None, with_tools: bool = False
    ) -> ChatTemplate:
        """The template called `name`; else the one for tools when there are some; else the
        default. Raises `BadInput` when there is none, saying how to give one."""
        if name is None:
            name = TOOL_USE if with_tools and TOOL_USE in self.sources else DEFAULT
        source = self.sources.get(name)
        if source is None and self.sources:
            raise BadInput(
                f"{self.origin}: no chat template is called {name!r}: there are "
                f"{', '.join(sorted(self.sources))}"
            )
        if source is None:
            raise BadInput(
                f"{self.origin}: holds no chat template: give one as a Jinja2 file, or send a "
                "plain prompt instead of messages"
            )
        from pellucid.text.chat import ChatTemplate  # brings Jinja2, which a prompt never needs

        return ChatTemplate(source, *_edge_tokens(tokenizer))


def gguf_chat_templates(metadata: Mapping[str, object], path: str | Path) -> ChatTemplates:
    """`tokenizer.chat_template` and `tokenizer.chat_template.<name>`. Raises `FormatError`."""
    sources = {}
    for key, value in metadata.items():
        if key != _GGUF_KEY and not key.startswith(_GGUF_KEY + "."):
            continue
        if not isinstance(value, str):
            raise FormatError(path, key, f"must be a string, not {type(value).__name__}")
        sources[key.removeprefix(_GGUF_KEY).removeprefix(".") or DEFAULT] = value
    return ChatTemplates(sources, Path(path))


def folder_chat_templates(path: str | Path) -> ChatTemplates:
    """`chat_template.jinja` (and additional_chat_templates/), else `chat_template.json`, else the
    entry of tokenizer_config.json, one text or a list of named ones. Raises `FormatError`."""
    folder = Path(path)
    folder = folder.parent if folder.is_file() else folder
    sources: dict[str, str] = {}
    for name in ("tokenizer_config.json", "chat_template.json"):
        file = folder / name
        sources |= _named_sources(file, read_object(file).get("chat_template"))
    text = read_text(folder / "chat_template.jinja")
    if text is not None:
        sources[DEFAULT] = text
    more = folder / "additional_chat_templates"
    for file in sorted(more.glob("*.jinja")) if more.is_dir() else ():
        sources[file.stem] = read_text(file) or ""
    return ChatTemplates(sources, folder)


def given_chat_template(source: str, tokenizer: Tokenizer) -> ChatTemplates:
    """A caller's own template, in place of a model's. Raises `BadInput` if it does not parse."""
    templates = ChatTemplates({DEFAULT: source}, Path("the given chat template"))
    templates.choose(tokenizer)
    return templates


def _named_sources(file: Path, value: object) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    named = {}
    for entry in value if isinstance(value, list) else [None]:
        name, text = (
            (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(name, str) or not isinstance(text, str):
            raise FormatError(
                file, "chat_template", "must be a text, or a list of {'name', 'template'}"
            )
        named[name] = text
    return named


def _edge_tokens(tokenizer: Tokenizer) -> tuple[str | None, str | None]:
    tokens = tokenizer.vocabulary.tokens
    bos, eos = tokenizer.bos_id, tokenizer.eos_ids[:1]
    return None if bos is None else tokens[bos], tokens[eos[0]] if eos else None
