"""Options: everything that can be set for `pellucid serve`, in one table.

From it come the flags (`--max-num-seqs`), the environment variables (`PELLUCID_MAX_NUM_SEQS`), the
keys of the settings file (`max_num_seqs`), and their list in the documents. Where several say the
same, a flag counts before the environment, that before the file, and that before the default.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pellucid.core.errors import BadInput
from pellucid.core.logs import FORMATS, LEVELS
from pellucid.speculation.settings import FIELDS, METHODS, RULES, from_flags

Kind = Literal["text", "texts", "count", "seconds", "size", "switch"]

PREFIX: Final = "PELLUCID_"
CONFIG: Final = "PELLUCID_CONFIG"
# Variables that belong to other parts.
_OTHERS: Final = frozenset({"DEBUG", "HOME", "OFFLINE", "SIMD", "CONFIG"})
_OTHER_PREFIXES: Final = ("TEST_",)

_UNITS: Final = {
    "": 1, "k": 10**3, "m": 10**6, "g": 10**9, "kb": 10**3, "mb": 10**6, "gb": 10**9,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Option:
    """`name` in the settings file; `low` is the least a number may be, `high` the most. A default
    of None leaves it to the engine, `shown` says what that means."""

    name: str
    kind: Kind
    default: Any
    help: str
    shown: str = ""
    low: float = 1
    high: float = math.inf
    choices: tuple[str, ...] = ()
    secret: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def default_in_words(self) -> str:
        if self.shown or self.default is None:
            return self.shown
        if self.kind == "switch":
            return "on" if self.default else "off"
        return ", ".join(self.default) if self.kind == "texts" else f"{self.default}"

    def read(self, given: Any, source: str) -> Any:
        """The value of what a source gives: its own type, or text. Raises `BadInput`."""
        try:
            value = _READERS[self.kind](given)
        except ValueError as error:
            raise BadInput(f"{source}: {self.name} {error}") from None
        if self.choices and value not in self.choices:
            raise BadInput(
                f"{source}: {self.name} must be one of {', '.join(self.choices)}, not {value!r}"
            )
        if self.kind in ("count", "seconds", "size") and value < self.low:
            raise BadInput(f"{source}: {self.name} must be at least {self.low:g}, not {given!r}")
        if self.kind in ("count", "seconds", "size") and value > self.high:
            raise BadInput(f"{source}: {self.name} is at most {self.high:g}, not {given!r}")
        return value


OPTIONS: Final = (
    Option("host", "text", "127.0.0.1", "The address to listen on; this machine alone."),
    Option(
        "port", "count", 8000, "The port to listen on; 0 chooses a free one.", low=0, high=65535
    ),
    Option("api_key", "texts", (), "A key that is asked of clients.", "none", secret=True),
    Option("allowed_origins", "texts", (), "Web pages that may ask; * is all.", "its own"),
    Option("served_model_name", "texts", (), "What clients call the model.", "the model's name"),
    Option("chat_template", "text", None, "A Jinja2 file in place of the model's own template."),
    Option("backend", "text", "native", "What computes: native or reference."),
    Option("threads", "count", None, "Threads to compute with.", "all cores"),
    Option("quantization", "text", None, "A type to quantise to at load.", "as stored"),
    Option(
        "speculative_method", "text", None, "Who guesses tokens ahead.", "nobody", choices=METHODS,
    ),
    Option("speculative_model", "text", None, "A smaller model that guesses.", "none"),
    Option("speculative_tokens", "count", None, "The most guessed at once.", "the method's"),
    Option(
        "speculative_rule", "text", None,
        "What guesses leave: the very answer, or its distribution.", "exact", choices=RULES,
    ),
    Option("speculative_layers", "count", None, "Layers that guess, for early-exit.", "a third"),
    Option(
        "speculative_quantization", "text", None, "Of the draft model's weights.", "as stored",
    ),
    Option(
        "speculative_vocabulary", "count", None, "First tokens that the draft model scores.",
        "32,768 of more than twice as many",
    ),
    Option("speculative_adaptive", "switch", True, "Only as many guesses as pay."),
    Option("max_model_len", "count", None, "Context: prompt and answer.", "the model's"),
    Option("max_num_seqs", "count", None, "Answers that run at once.", "32"),
    Option("max_num_batched_tokens", "count", None, "Positions of one step.", "512"),
    Option(
        "activations", "text", None,
        "What products of quantised weights read: int8, bf16 or f32.", "int8",
    ),
    Option(
        "kv_cache_dtype", "text", None,
        "Keys and values: f32, f16, int8, int4, or two as int8/int4.", "f16",
    ),
    Option("kv_cache_memory", "size", None, "Memory of the KV cache.", "half of what is free"),
    Option("enable_prefix_caching", "switch", True, "Keep the pages of prompts for the next."),
    Option("seed", "count", None, "Makes requests without a seed repeatable.", low=0),
    Option("engine_process", "switch", True, "The engine in a process of its own."),
    Option("replicas", "count", None, "Engines that answer, on Ray.", "one, without Ray"),
    Option("min_replicas", "count", None, "The fewest, where their number follows the load."),
    Option("max_replicas", "count", None, "The most, where their number follows the load."),
    Option(
        "pipeline_parallel_size", "count", None, "Stages that the model is cut into, on Ray.",
        "one, without Ray",
    ),
    Option("ray_address", "text", None, "A Ray cluster: HOST:PORT, or auto.", "one of its own"),
    Option(
        "routing", "text", "prefix", "Which replica a request goes to.",
        choices=("prefix", "least-loaded", "round-robin"),
    ),
    Option("max_num_queued_reqs", "count", 2048, "Answers that may wait; more: 429.", low=0),
    Option(
        "max_num_queued_tokens", "count", 4_000_000,
        "Tokens of prompts that may wait and run; 0: any.", low=0,
    ),
    Option("request_timeout", "seconds", 0, "Of a request in all; 0: none.", low=0),
    Option("engine_start_wait", "seconds", 15, "Of requests for an engine that is starting."),
    Option("engine_hang_timeout", "seconds", 300, "For one step; then the engine is killed."),
    Option("stalled_client_timeout", "seconds", 120, "For a client that reads nothing."),
    Option("keep_alive_interval", "seconds", 1, "The longest silence of a stream.", low=0.1),
    Option("shutdown_timeout", "seconds", 30, "For what runs, after SIGTERM or Ctrl-C.", low=0),
    Option("max_body_size", "size", 8 << 20, "Of one request.", "8 MiB"),
    Option("max_prompts", "count", 256, "Prompts of one request."),
    Option("max_n", "count", 64, "Answers to one prompt."),
    Option("max_choices", "count", 256, "Answers of one request: prompts times n."),
    Option("max_logprobs", "count", 20, "Alternatives shown for a token."),
    Option("max_stop_strings", "count", 16, "Stop strings of one request."),
    Option("max_stop_length", "count", 256, "Characters of a stop string."),
    Option("max_stop_token_ids", "count", 256, "Stop tokens of one request."),
    Option("max_bias_entries", "count", 1024, "Entries of logit_bias."),
    Option("max_schema_size", "size", 64 << 10, "Of a JSON schema.", "64 KiB"),
    Option("max_schema_depth", "count", 32, "Levels of a JSON schema."),
    Option("max_tools", "count", 128, "Tools of one request."),
    Option("log_level", "text", "info", "The least that is said.", choices=LEVELS),
    Option("log_format", "text", "json", "Lines on standard error.", choices=FORMATS),
    Option("access_log", "switch", True, "A line for each HTTP request."),
    Option("log_prompts", "switch", False, "Prompts in the log, for whoever may read them."),
    Option("record", "text", None, "A file for a recording of the steps, for the live pages."),
    Option("show_prompts", "switch", False, "Others' texts, for whoever looks at the live pages."),
    Option("otlp_traces_endpoint", "text", None, "Where OpenTelemetry traces go.", "nowhere"),
)  # fmt: skip
BY_NAME: Final = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class Chosen:
    """A value for each option, and where it came from."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def told(self) -> dict[str, str]:
        """What was set, with its source, for the log; secrets are not shown."""
        return {
            name: f"{'***' if BY_NAME[name].secret else self.values[name]} ({source})"
            for name, source in self.sources.items()
        }


def choose(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: str | Path | None = None
) -> Chosen:
    """Every option's value.

    flags: name to value, of those that were given. file: a settings file in TOML; None is the one
    that PELLUCID_CONFIG names, if any. Raises `BadInput` naming source, key and, for an unknown
    key, the nearest known.
    """
    path = file or environment.get(CONFIG)
    layers: list[tuple[Mapping[str, Any], Callable[[Option], str]]] = [
        (flags, lambda option: option.flag),
        (_of_environment(environment), lambda option: option.variable),
        ({} if path is None else _of_file(Path(path)), lambda option: f"{path}"),
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option in OPTIONS:
        values[option.name] = option.default
        for layer, source_of in layers:
            if option.name in layer:
                source = sources[option.name] = source_of(option)
                values[option.name] = option.read(layer[option.name], source)
                break
    return Chosen(values, sources)


def speculation_of(chosen: Chosen) -> dict[str, Any] | None:
    """How tokens are to be guessed ahead, as `LLM` takes it. Raises `BadInput`."""
    return from_flags({field: chosen[f"speculative_{field}"] for field in FIELDS})


def table() -> str:
    """The options as a table in Markdown, for the documents."""
    lines = ["| flag | in the file | what it is | default |", "|---|---|---|---|"]
    for option in OPTIONS:
        flag = option.flag
        if option.kind == "switch":
            flag += f"`, `--no-{option.name.replace('_', '-')}"
        words = option.help.rstrip(".")
        if option.kind == "texts":
            words += "; several may be given"
        if option.choices:
            words += f" ({', '.join(option.choices)})"
        if option.kind == "seconds":
            words += " (seconds)"
        lines.append(f"| `{flag}` | `{option.name}` | {words} | {option.default_in_words} |")
    return "\n".join(lines) + "\n"


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, text in environment.items():
        key = variable.removeprefix(PREFIX)
        if key == variable or key in _OTHERS or key.startswith(_OTHER_PREFIXES):
            continue
        if key.lower() not in BY_NAME or not key.isupper():
            known = [option.variable for option in OPTIONS] + [PREFIX + key for key in _OTHERS]
            raise BadInput(_unknown("the environment", variable, known))
        option = BY_NAME[key.lower()]
        found[option.name] = text.split(",") if option.kind == "texts" else text
    return found


def _of_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: a settings file is UTF-8 text: {error.reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: {error}: a settings file is TOML, name = value") from error
    for name in found:
        if name not in BY_NAME:
            raise BadInput(_unknown(f"{path}", name, BY_NAME))
    return found


def _unknown(source: str, name: str, known: Iterable[str]) -> str:
    alike = [name.upper(), name.lower(), name.replace("-", "_")]  # a wrong case is the nearest
    known = list(known)
    near = [key for key in known if key in alike] or difflib.get_close_matches(name, known, 1)
    mend = f"did you mean {near[0]!r}?" if near else "`pellucid serve --help` lists what there is"
    return f"{source}: {name!r} is no setting: {mend}"


def _text(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError(f"must be text, not {given!r}")
    return given


def _texts(given: Any) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple):
        raise ValueError(f"must be a list of texts, not {given!r}")
    return tuple(_text(item) for item in listed)


def _count(given: Any) -> int:
    if isinstance(given, str) and re.fullmatch(r"[0-9_]{1,18}", given):
        return int(given)
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError(f"must be a whole number, not {given!r}")
    return given


def _seconds(given: Any) -> float:
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = -1.0
    if isinstance(given, bool) or not 0 <= value < 1e9:
        raise ValueError(f"must be a number of seconds, not {given!r}")
    return value


def _size(given: Any) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)\s*([a-z]*)", str(given).strip().lower())
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"must be a size such as 512MiB or 2GiB, not {given!r}")
    return int(float(found[1]) * _UNITS[found[2]])


def _switch(given: Any) -> bool:
    words = {"true": True, "1": True, "on": True, "yes": True}
    words |= {"false": False, "0": False, "off": False, "no": False}
    if isinstance(given, bool):
        return given
    if not isinstance(given, str) or given.lower() not in words:
        raise ValueError(f"must be true or false, not {given!r}")
    return words[given.lower()]


_READERS: Final[dict[Kind, Callable[[Any], Any]]] = {
    "text": _text,
    "texts": _texts,
    "count": _count,
    "seconds": _seconds,
    "size": _size,
    "switch": _switch,
}
