"""Jinja2 for templates nobody has vetted: no way out, and no way to run on or grow without end.

Invariants:
1. A template reaches only the values it is given, made of plain JSON types, and the methods and
   globals listed here.
2. Every loop turn and macro call is counted, and the clock is looked at; past the limits the
   rendering ends with `LimitError`.
3. Every value a template can build is weighed when it is built (strings by their length,
   containers by what they hold), and refused above the limit, so that none can be doubled into
   something whose text, comparison or JSON takes for ever. Results that could be huge at once
   (`'a' * 10**9`, `'%999999999d'`, `center`) are sized before they are made.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, Final, NoReturn

from jinja2 import Environment, Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Cycler, Joiner, Namespace

MAX_STEPS: Final = 2_000_000
MAX_SECONDS: Final = 5.0
MAX_WEIGHT: Final = 16 << 20  # characters and entries, beyond what the input itself weighs
MAX_ENTRIES: Final = 1 << 18  # of containers, each counted as often as it occurs
MAX_SLOW_CHARS: Final = 1 << 20  # for filters written in Python, which no step count can stop
MAX_INT_BITS: Final = 4096
MAX_WIDTH: Final = 1 << 16  # padding, indentation, decimal places

_METHODS: Final[dict[type, frozenset[str]]] = {
    str: frozenset(
        "capitalize casefold center count encode endswith expandtabs find format format_map index "
        "isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable "
        "isspace istitle isupper join ljust lower lstrip partition removeprefix removesuffix "
        "replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip "
        "swapcase title upper zfill".split()
    ),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
}
_FILTERS_OUT: Final = ("urlize", "xmlattr", "pprint", "random", "filesizeformat")
_RUNTIME_CALLABLES: Final = (Macro, LoopContext, Cycler, Joiner)


class LimitError(TemplateError):
    """A template that went past a limit of time, steps or size."""


@dataclass
class Budget:
    """What one rendering may still use. `weight` is in characters and container entries.

    Time is that of this thread on a processor: a busy machine refuses nothing that a quiet one
    takes.
    """

    weight: int = MAX_WEIGHT
    steps: int = field(default_factory=lambda: MAX_STEPS)
    deadline: float = field(default_factory=lambda: time.thread_time() + MAX_SECONDS)
    written: int = 0
    known: dict[int, int] = field(default_factory=dict)  # weights of the input's containers, by id

    def tick(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise LimitError(f"it takes more than {MAX_STEPS} steps")
        self.look_at_clock()

    def look_at_clock(self) -> None:
        if time.thread_time() > self.deadline:
            raise LimitError(f"it takes more than {MAX_SECONDS:g} seconds of a processor")

    def write(self, characters: int) -> None:
        self.written += characters
        self.fits(self.written)

    def fits(self, weight: int) -> None:
        if weight > self.weight:
            raise LimitError(f"it builds more than {self.weight} characters")

    def weigh(self, value: object) -> int:
        """Characters and entries in `value`, shared parts counted each time they occur."""
        total = entries = 0
        stack = [value]
        while stack:
            item = stack.pop()
            total += 1
            if isinstance(item, str | bytes):
                total += len(item)
            elif id(item) in self.known:
                total += self.known[id(item)]
            elif isinstance(item, dict):
                entries += 2 * len(item)
                stack.extend(item.keys())
                stack.extend(item.values())
            elif isinstance(item, list | tuple | set | frozenset):
                entries += len(item)
                stack.extend(item)
            if entries > MAX_ENTRIES:
                raise LimitError(f"it builds more than {MAX_ENTRIES} entries")
            if total & 0xFFFF == 0:
                self.look_at_clock()
            self.fits(total)
        return total

    def admit(self, value: object) -> None:
        """Adds an input to what may be built, and remembers what its parts weigh. Inputs are
        trees that outlive the rendering and never change."""
        weight = self._admit(value)
        self.weight += 16 * weight

    def _admit(self, value: object) -> int:
        if isinstance(value, str):
            return len(value) + 1
        if isinstance(value, dict):
            parts: list[object] = [*value.keys(), *value.values()]
        elif isinstance(value, list):
            parts = value
        else:
            return 1
        self.known[id(value)] = weight = len(parts) + sum(map(self._admit, parts)) + 1
        return weight


_budget: ContextVar[Budget] = ContextVar("chat_template_budget")


def render_within(budget: Budget, template: Template, variables: Mapping[str, Any]) -> str:
    """The rendered text. Raises `LimitError`, and whatever the template's code raises."""
    token = _budget.set(budget)
    try:
        return template.render(variables)
    finally:
        _budget.reset(token)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Whitespace, filters and globals as Hugging Face's chat templates expect them."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # folding constants would run filters before any budget counts
            finalize=_written,
            extensions=[LoopControlExtension, _GenerationBlock],
        )
        for name in _FILTERS_OUT:
            self.filters.pop(name, None)
        self.filters["tojson"] = _to_json
        self.filters = {name: _bounded(name, call) for name, call in self.filters.items()}
        self.globals = {
            "range": self.globals["range"],
            "dict": _make_dict,
            "cycler": Cycler,
            "joiner": Joiner,
            "namespace": _Namespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        self._callables = {id(value) for value in self.globals.values()}
        # What the compiled template calls to count; not names a template could take.
        self.count_step = _count_step
        self.count_written = _count_written
        self.build = _weighed
        self.join_text = _join_text
        self._counters = {id(call) for call in (_count_step, _count_written, _weighed, _join_text)}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        _instrument(template)
        return template

    def is_safe_callable(self, obj: Any) -> bool:
        if id(obj) in self._callables or isinstance(obj, _RUNTIME_CALLABLES):
            return True
        if isinstance(obj, Undefined):
            return True  # calling it says what is undefined
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, _RUNTIME_CALLABLES):
            return not obj.__name__.startswith("_")
        if getattr(obj, "is_bounded_format", False):
            return True
        allowed = next((_METHODS[kind] for kind in _METHODS if type(owner) is kind), frozenset())
        return getattr(obj, "__name__", "") in allowed

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        if id(__obj) in __self._counters:
            return __obj(*args)
        _budget.get().tick()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            _check_str_method(owner, __obj.__name__, args, kwargs)
        return _weighed(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        _check_binop(operator, left, right)
        return _weighed(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text: str = value.__self__
        formatter = _BoundedFormatter(self)

        def bounded(*args: Any, **kwargs: Any) -> str:
            _budget.get().tick()
            if value.__name__ == "format_map":
                kwargs, args = dict(args[0]), ()
            return str(formatter.vformat(text, args, kwargs))

        bounded.is_bounded_format = True  # type: ignore[attr-defined]
        return bounded


class _BoundedFormatter(SandboxedFormatter):
    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._size = 0

    def format_field(self, value: Any, format_spec: str) -> str:
        budget = _budget.get()
        _check_digits(format_spec)
        if not isinstance(value, str | int | float):
            budget.weigh(value)
        text = str(super().format_field(value, format_spec))
        self._size += len(text)
        budget.fits(self._size)
        return text


class _GenerationBlock(Extension):
    """`{% generation %}` marks what the assistant said, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - Jinja2's own interface

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Namespace(Namespace):
    """Refuses underscored names, which would reach Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<namespace>"  # not what it holds, which no weighing counts


def _check_name(name: object) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


def _instrument(template: nodes.Template) -> None:
    """Puts the counters in: at the head of every loop and macro, before long stretches of text,
    around every literal container and every concatenation."""
    _instrument_children(template)
    for node in template.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
        assert isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock)
        node.body.insert(0, _statement("count_step", node.lineno))


def _instrument_children(node: nodes.Node) -> None:
    for name, value in node.iter_fields():
        if isinstance(value, list):
            setattr(node, name, [new for item in value for new in _instrumented_item(item)])
        elif isinstance(value, nodes.Node):
            setattr(node, name, _instrumented(value))


def _instrumented_item(item: Any) -> list[Any]:
    if not isinstance(item, nodes.Node):
        return [item]
    new = _instrumented(item)
    if not isinstance(item, nodes.Output):
        return [new]
    static = sum(len(part.data) for part in item.nodes if isinstance(part, nodes.TemplateData))
    if static < _UNCOUNTED:
        return [new]
    return [_statement("count_written", item.lineno, nodes.Const(static)), new]


_UNCOUNTED = 64  # characters of fixed text that the count of steps bounds well enough


def _instrumented(node: nodes.Node) -> nodes.Node:
    _instrument_children(node)
    if isinstance(node, nodes.Concat):
        return _call("join_text", node.lineno, *node.nodes)
    if isinstance(node, nodes.List | nodes.Dict) or (
        isinstance(node, nodes.Tuple) and node.ctx == "load"
    ):
        return _call("build", node.lineno, node)
    return node


def _statement(name: str, line: int, *args: nodes.Expr) -> nodes.Stmt:
    return nodes.ExprStmt(_call(name, line, *args), lineno=line)


def _call(name: str, line: int, *args: nodes.Expr) -> nodes.Call:
    counter = nodes.EnvironmentAttribute(name, lineno=line)
    return nodes.Call(counter, list(args), [], None, None, lineno=line)


def _count_step() -> None:
    _budget.get().tick()


def _count_written(characters: int) -> None:
    _budget.get().write(characters)


def _join_text(*values: Any) -> str:
    budget = _budget.get()
    budget.fits(sum(_text_weight(value) for value in values))
    return "".join(map(str, values))


@pass_context  # else Jinja2 would call it while compiling
def _written(_: Context, value: Any) -> Any:
    _budget.get().write(_text_weight(value))
    return value


def _weighed(value: Any) -> Any:
    if isinstance(value, str | list | tuple | dict | bytes):
        _budget.get().weigh(value)
    elif isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise LimitError("it computes a number that is too large")
    return value


def _text_weight(value: Any) -> int:
    """At least the length of `str(value)`, without making it; containers in proportion."""
    return len(value) if isinstance(value, str) else 4 * _budget.get().weigh(value)


def _check_digits(spec: str) -> None:
    """Widths and precisions of a format specification are bounded."""
    if any(int(number) > MAX_WIDTH for number in re.findall(r"[0-9]{1,18}", spec)):
        raise LimitError(f"it pads to more than {MAX_WIDTH} characters")


def _check_width(value: object) -> None:
    if isinstance(value, int) and abs(value) > MAX_WIDTH:
        raise LimitError(f"it pads to more than {MAX_WIDTH} characters")


def _check_binop(operator: str, left: Any, right: Any) -> None:
    budget = _budget.get()
    sized = (str, bytes, list, tuple)
    if operator == "*":
        for value, count in ((left, right), (right, left)):
            if isinstance(value, sized) and isinstance(count, int):
                budget.fits(budget.weigh(value) * max(count, 0))
    elif operator == "+" and isinstance(left, sized) and isinstance(right, sized):
        budget.fits(budget.weigh(left) + budget.weigh(right))
    elif operator == "%" and isinstance(left, str):
        _check_percent(left, right)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        if right > 0 and left.bit_length() * right > MAX_INT_BITS:
            raise LimitError("it computes a number that is too large")
    elif operator == "%" and isinstance(left, bytes):
        raise SecurityError("bytes cannot be formatted")


def _check_percent(template: str, values: Any) -> None:
    """printf-style formatting: widths bounded, and the values weighed for each place."""
    budget = _budget.get()
    if re.search(r"%[^%a-zA-Z]*\*", template):
        raise LimitError("it takes a padding width from its data")
    for spec in re.findall(r"%[^%a-zA-Z]*", re.sub(r"%\([^)]*\)", "%", template)):
        _check_digits(spec)
    places = template.count("%") if isinstance(values, dict) else 1
    budget.fits(len(template) * 2 + 4 * budget.weigh(values) * max(places, 1))


def _check_str_method(
    text: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Sizes the results of string methods that may be far larger than what they are given."""
    budget = _budget.get()
    if name in ("center", "ljust", "rjust", "zfill") and args:
        _check_width(args[0])
    elif name == "expandtabs":
        size = args[0] if args else kwargs.get("tabsize", 8)
        _check_width(size)
        budget.fits(len(text) + text.count("\t") * (size if isinstance(size, int) else 0))
    elif name == "replace":
        _check_replace(text, args)
    elif name == "join" and args and isinstance(args[0], list | tuple | dict | str):
        budget.fits(budget.weigh(args[0]) + len(text) * len(args[0]))


def _check_replace(text: str, args: tuple[Any, ...]) -> None:
    if len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        places = text.count(args[0]) if args[0] else len(text) + 1
        _budget.get().fits(len(text) + places * len(args[1]))


_WIDE_FILTERS: Final = {"center", "indent", "wordwrap", "truncate", "batch", "slice", "round"}
_SLOW_FILTERS: Final = {"title", "wordwrap", "striptags", "wordcount"}
_TEXT_FILTERS: Final = {"string", "join", "format", "escape", "e", "forceescape", "replace"}


def _bounded(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, counted and sized. Jinja2 marks filters that take the context or environment
    as their first argument, and `wraps` keeps the mark."""

    @wraps(call)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        budget = _budget.get()
        budget.tick()
        first = int(hasattr(call, "jinja_pass_arg"))
        if name == "join" and len(args) > first and isinstance(args[first], Iterator):
            args = (*args[:first], list(args[first]), *args[first + 1 :])
        _check_filter(budget, name, args[first:], kwargs)
        result = call(*args, **kwargs)
        return _counted(result) if isinstance(result, Iterator) else _weighed(result)

    return bounded


def _counted(items: Iterator[Any]) -> Iterator[Any]:
    """The items, each a step, together no more than a value may weigh."""
    budget, total = _budget.get(), 0
    for item in items:
        budget.tick()
        total += budget.weigh(item)
        budget.fits(total)
        yield item


def _check_filter(
    budget: Budget, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    if not args:
        return
    value, settings = args[0], (*args[1:], *kwargs.values())
    if name in _WIDE_FILTERS:
        for setting in settings:
            _check_width(setting)
    if name in _TEXT_FILTERS:
        budget.weigh(value)
    if name in _SLOW_FILTERS and budget.weigh(value) > MAX_SLOW_CHARS:
        raise LimitError(f"{name} works on at most {MAX_SLOW_CHARS} characters")
    if name == "format":
        _check_percent(str(value), kwargs or args[1:])
    elif name == "replace":
        _check_replace(str(value), tuple(map(str, args[1:])))
    elif name == "join":
        _check_join(budget, value, settings)
    elif name == "indent":
        widths = [len(s) if isinstance(s, str) else s for s in settings if not isinstance(s, bool)]
        lines = str(value).count("\n") + 1
        budget.fits(len(str(value)) + lines * max([4, *(w for w in widths if w)]))
    elif name == "sum" and any(not isinstance(s, int | float | str) for s in settings):
        raise SecurityError("sum adds numbers only")


def _check_join(budget: Budget, value: Any, settings: tuple[Any, ...]) -> None:
    if isinstance(value, list | tuple | dict | str):
        separator = max((len(s) for s in settings if isinstance(s, str)), default=0)
        budget.fits(budget.weigh(value) + separator * len(value))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, with the arguments Hugging Face's `tojson` has."""
    if isinstance(value, Undefined):
        raise TemplateError("tojson was given an undefined value")
    _check_width(indent)
    budget = _budget.get()
    budget.weigh(value)
    chunks, size = [], 0
    for chunk in _json_chunks(value, ensure_ascii, indent, separators, sort_keys):
        size += len(chunk)
        budget.fits(size)
        chunks.append(chunk)
    return "".join(chunks)


def _json_chunks(
    value: Any,
    ensure_ascii: bool,
    indent: int | str | None,
    separators: tuple[str, str] | None,
    sort_keys: bool,
) -> Iterator[str]:
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return encoder.iterencode(value)


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: object = "") -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(layout: str) -> str:
    """The local time now, as `strftime` writes it."""
    if len(layout) > 256 or re.search(r"%[^a-zA-Z%]*[0-9]", layout):
        raise LimitError("its date layout is too long")
    return datetime.now().strftime(layout)
