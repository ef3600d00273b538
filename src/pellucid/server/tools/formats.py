"""How models write tool calls, and which of these a chat template asks for.

- Hermes, Qwen: `<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>`, any number of
  them, text before and between.
- Llama 3: the whole answer is `{"name": ..., "parameters": {...}}`, or several with `;` between,
  perhaps after `<|python_tag|>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """`begin` and `end` stand around a call. `bare`: a call may also begin with its own brace,
    where the answer begins. `arguments` is what the object calls them, the first when written."""

    name: str
    begin: str
    end: str
    bare: bool
    arguments: tuple[str, ...]
    between: str

    def as_schema(self, functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A JSON schema of a call of one of `functions`."""
        if len(functions) == 1:
            return self._call_schema(functions[0], "#")
        return {"anyOf": [self._call_schema(f, f"#/anyOf/{i}") for i, f in enumerate(functions)]}

    def _call_schema(self, function: Mapping[str, Any], place: str) -> dict[str, Any]:
        arguments = self.arguments[0]
        parameters = function.get("parameters") or {"type": "object"}
        return {
            "type": "object",
            "properties": {
                "name": {"const": function["name"]},
                arguments: _rebased(parameters, f"{place}/properties/{arguments}"),
            },
            "required": ["name", arguments],
            "additionalProperties": False,
        }

    def as_grammar(
        self, functions: Sequence[Mapping[str, Any]], *, several: bool, text: bool
    ) -> str:
        """A Lark grammar of an answer that is a call of one of `functions`, or several calls.
        `text`: or text, and then calls or none."""
        more = f" ({json.dumps(self.between)} call)*" if several else ""
        begin, end = json.dumps(self.begin + "\n"), json.dumps("\n" + self.end)
        rules = [
            f"start: {'TEXT | ' if text else ''}first{more}",
            "first: call",
            "call: object" if self.bare else f"call: {begin} object {end}",
            f"object: %json {json.dumps(self.as_schema(functions), ensure_ascii=False)}",
        ]
        if text and self.bare:
            rules.append(r"TEXT: /[^{<\s](.|\n)*/")
        elif text:
            mark = re.escape(self.begin)
            rules[1] = f"first: to_call object {end}"
            rules.append(rf"to_call[lazy]: /(.|\n)*{mark}\n/ & ~/(.|\n)*{mark}[^\n](.|\n)*/")
            rules.append(rf"TEXT: /(.|\n)+/ & ~/(.|\n)*{mark}(.|\n)*/")
        return "\n".join(rules) + "\n"


def _rebased(schema: Any, place: str) -> Any:
    """`schema` as part of another, at `place` there: its references to itself follow it."""
    if isinstance(schema, list):
        return [_rebased(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _rebased(value, place) for key, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        moved["$ref"] = place + reference[1:]
    return moved


HERMES: Final = ToolFormat(
    "hermes", "<tool_call>", "</tool_call>", False, ("arguments", "parameters"), "\n"
)
LLAMA3: Final = ToolFormat("llama3", "<|python_tag|>", "", True, ("parameters", "arguments"), "; ")


def format_of(template: str | None) -> ToolFormat | None:
    """The format that a chat template teaches its model; None if it lays out no tools, or teaches
    one that is not known here."""
    if template is None or "tools" not in template:
        return None
    if HERMES.begin in template:
        return HERMES
    if "python_tag" in template or ('"parameters"' in template and "ipython" in template):
        return LLAMA3
    return None
