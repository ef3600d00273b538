"""What of JSON Schema can be enforced, checked before a schema is compiled.

The compiler ignores some of what it does not know and is inexact in places; here every keyword is
known, or refused by name:

1. Annotations are left out of what is compiled; every other keyword must be one of `_ENFORCED`.
2. A `$ref` leads to a schema of the same document.
3. Integers beyond 2^53 are refused: they are compared as float64.
4. An object may have a key twice, of which readers keep the last; so at most one key may be
   asked for by `minProperties` that `required` does not name.
5. A schema that only endless text satisfies (an object that requires itself) is refused.

Keywords as in JSON Schema 2020-12, and as in draft 7 where they have other names there.
"""

from __future__ import annotations

from typing import Any

from pellucid.core.errors import BadInput, UnsupportedError

Schema = dict[str, Any] | bool

_ANNOTATIONS = frozenset(
    "title description default examples example deprecated readOnly writeOnly $comment $schema "
    "$anchor contentMediaType contentEncoding discriminator".split()
)
_ONE = frozenset({"items", "additionalItems", "additionalProperties"})
_SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_COUNTS = frozenset("minLength maxLength minItems maxItems minProperties maxProperties".split())
_VALUES = frozenset({"const", "enum"})
_TEXTS = frozenset({"pattern", "format", "$ref"})
_ENFORCED = _ONE | _SEVERAL | _NAMED | _NUMBERS | _COUNTS | _VALUES | _TEXTS | {"type", "required"}
_TYPES = frozenset("null boolean integer number string array object".split())
_LARGEST = 1 << 53
_ROUNDS_OF = 1_000_000  # schemas looked at in search of endless ones


def checked(schema: Any) -> Schema:
    """The schema with its annotations left out.

    Raises `BadInput` for a schema that is malformed or satisfied by endless text alone,
    `UnsupportedError` for what cannot be enforced; both name the place and the keyword.
    """
    walk = _Walk()
    root = walk.schema(schema, "#")
    for place, target in walk.references:
        if target not in walk.schemas:
            raise BadInput(f"schema at {place}: $ref {target[:80]!r} leads to no schema")
    if not _Ends(walk.schemas).certain(root):
        raise BadInput(
            "schema: no finite text satisfies it, since it requires itself: make one of the "
            "properties on the way optional"
        )
    return root


class _Walk:
    """Every schema of a document by its JSON pointer, and every reference."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self.references: list[tuple[str, str]] = []

    def schema(self, given: Any, place: str) -> Schema:
        if not isinstance(given, bool | dict):
            raise BadInput(f"schema at {place}: a schema is an object, true or false")
        if isinstance(given, bool):
            self.schemas[place] = given
            return given
        kept = {
            key: self._keyword(key, value, place)
            for key, value in given.items()
            if not self._left_out(key, place)
        }
        if not isinstance(kept.get("items"), list):
            kept.pop("additionalItems", None)  # it counts beside a list alone
        _check_together(kept, place)
        self.schemas[place] = kept
        return kept

    def _left_out(self, key: str, place: str) -> bool:
        vendor = key.startswith("x-") and key != "x-guidance"
        return key in _ANNOTATIONS or vendor or (key in ("$id", "id") and place == "#")

    def _keyword(self, key: str, value: Any, place: str) -> Any:
        where = f"{place}/{_escaped(key)}"
        if key not in _ENFORCED:
            raise UnsupportedError(
                f"schema at {place}: the keyword {key[:50]!r} is not supported: leave it out, or "
                "say the same in other keywords"
            )
        if key in _SEVERAL or (key == "items" and isinstance(value, list)):
            return self._several(value, where)
        if key in _ONE:
            return self.schema(value, where)
        if key in _NAMED:
            _must(isinstance(value, dict), where, "maps names to schemas")
            return {k: self.schema(v, f"{where}/{_escaped(k)}") for k, v in value.items()}
        _check_value(key, value, where)
        if key == "$ref":
            self.references.append((place, _target(value, place)))
        return int(value) if key in _COUNTS else value

    def _several(self, value: Any, where: str) -> list[Schema]:
        _must(isinstance(value, list) and bool(value), where, "is a list of schemas, not empty")
        return [self.schema(item, f"{where}/{i}") for i, item in enumerate(value)]


def _check_value(key: str, value: Any, where: str) -> None:
    if key in _NUMBERS:
        draft_4 = key.startswith("exclusive") and isinstance(value, bool)
        _must(draft_4 or _is_number(value), where, "is a number")
        _check_exact(value, where)
        _must(key != "multipleOf" or value > 0, where, "is above 0")
    elif key in _COUNTS:
        _must(_is_number(value) and value >= 0 and value == int(value), where, "counts, from 0")
        _check_exact(value, where)
    elif key in _TEXTS:
        _must(isinstance(value, str), where, "is a string")
    elif key == "type":
        types = value if isinstance(value, list) else [value]
        known = bool(types) and all(isinstance(t, str) and t in _TYPES for t in types)
        _must(known, where, f"is one of {', '.join(sorted(_TYPES))}, or a list of them")
    elif key == "required":
        names = isinstance(value, list) and all(isinstance(name, str) for name in value)
        _must(names, where, "is a list of strings")
    elif key == "enum":
        _must(isinstance(value, list) and bool(value), where, "is a list of values, not empty")
        _check_exact(value, where)
    else:
        _check_exact(value, where)


def _check_exact(value: Any, where: str) -> None:
    """No integer that float64 cannot tell from its neighbours."""
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            _check_exact(item, where)
    elif _is_number(value) and abs(value) > _LARGEST and isinstance(value, int):
        raise UnsupportedError(f"schema at {where}: integers beyond 2^53 are not supported")


def _check_together(schema: dict[str, Any], place: str) -> None:
    if "prefixItems" in schema and isinstance(schema.get("items"), list):
        raise BadInput(f"schema at {place}: items is a list beside prefixItems: keep prefixItems")
    if schema.get("minProperties", 0) > len(set(schema.get("required", ()))) + 1:
        raise UnsupportedError(
            f"schema at {place}: minProperties beyond one key that 'required' does not name is "
            "not supported: name the keys in 'required'"
        )


def _must(held: bool, where: str, rule: str) -> None:
    if not held:
        raise BadInput(f"schema: {where} {rule}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _target(reference: str, place: str) -> str:
    if reference in ("#", "#/"):
        return "#"
    if not reference.startswith("#/") or "%" in reference or "~" in reference:
        raise UnsupportedError(
            f"schema at {place}: $ref {reference[:80]!r}: only references within the document are "
            "supported, written #/..., without ~ and %"
        )
    return reference


def _escaped(name: str) -> str:
    """A name as one segment of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


class _Ends:
    """Which schemas a finite text satisfies: the least fixed point, over references.

    In doubt (conditions that contradict each other, say) a schema counts as one that ends.
    """

    def __init__(self, schemas: dict[str, Schema]) -> None:
        targets = {s["$ref"] for s in schemas.values() if isinstance(s, dict) and "$ref" in s}
        self._targets = {_target(target, "") for target in targets}
        self._ending: set[str] = set()
        for _ in range(max(1, _ROUNDS_OF // len(schemas))):
            more = {
                target for target in self._targets - self._ending if self.certain(schemas[target])
            }
            self._ending |= more
            if not more:
                return
        self._ending = self._targets  # too large to be certain

    def certain(self, schema: Schema) -> bool:
        if isinstance(schema, bool) or "const" in schema or "enum" in schema:
            return True
        if "$ref" in schema and _target(schema["$ref"], "") not in self._ending:
            return False
        if not all(self.certain(part) for part in schema.get("allOf", ())):
            return False
        for key in ("anyOf", "oneOf"):
            if key in schema and not any(self.certain(part) for part in schema[key]):
                return False
        types = schema.get("type", ())
        types = [types] if isinstance(types, str) else types
        if not types or set(types) - {"object", "array"}:
            return True
        return ("object" in types and self._object(schema)) or (
            "array" in types and self._array(schema)
        )

    def _object(self, schema: dict[str, Any]) -> bool:
        named = schema.get("properties", {})
        required = schema.get("required", ())
        return all(self.certain(named[name]) for name in required if name in named)

    def _array(self, schema: dict[str, Any]) -> bool:
        least = int(schema.get("minItems", 0))
        items = schema.get("items", True)
        first = items if isinstance(items, list) else schema.get("prefixItems", [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        return all(self.certain(part) for part in first[:least]) and (
            least <= len(first) or self.certain(rest)
        )
