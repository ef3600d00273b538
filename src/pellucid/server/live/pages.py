"""The KV cache as JSON: who owns which page, and the tree of what the prefix cache holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pellucid.core.record import CachedPage, PageMap
from pellucid.scheduling import Limits
from pellucid.server.live.checks import check_page_map
from pellucid.server.live.forms import Names

Decode = Callable[[Sequence[int]], str]


def pages_json(step: int, found: PageMap, names: Names, limits: Limits) -> dict[str, Any]:
    """Every page that is not free."""
    tables = []
    for table in found.tables:
        request = names.of(table.sequence)
        tables.append(
            {
                "request": None if request is None else request.id,
                "sequence": table.sequence,
                "pages": table.pages,
                "computed": table.computed,
                "prompt_tokens": table.n_prompt,
            }
        )
    return {
        "step": step,
        "page_size": limits.page_size,
        "n_pages": limits.n_pages,
        "sequences": tables,
        "cached": [page.page for page in found.cached],
        "idle": found.idle,
        "copies": found.copies,
        "checks": check_page_map(found, limits),
    }


def prefix_json(step: int, found: PageMap, limits: Limits, decode: Decode | None) -> dict[str, Any]:
    """The prefix tree, a node for each page. Texts where they may be `decode`d."""
    owners: dict[int, list[int]] = {}
    for table in found.tables:
        for page in table.pages:
            owners.setdefault(page, []).append(table.sequence)
    return {
        "step": step,
        "plan": found.plan,
        "page_size": limits.page_size,
        "nodes": [_node(page, owners, decode) for page in found.cached],
        "next_victim": found.idle[0] if found.idle else None,
        "idle": found.idle,
    }


def _node(page: CachedPage, owners: dict[int, list[int]], decode: Decode | None) -> dict[str, Any]:
    return {
        "page": page.page,
        "parent": page.parent,
        "hits": page.hits,
        "used": page.used,
        "sequences": owners.get(page.page, []),
        "text": None if decode is None else decode(page.tokens),
    }
