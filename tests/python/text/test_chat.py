"""What templates may do, and what they render."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pellucid.core.errors import BadInput
from pellucid.text import ChatTemplate
from tests.python.text import templates

USER = [{"role": "user", "content": "hi"}]


def render(source: str, messages: Any = None, **arguments: Any) -> str:
    return ChatTemplate(source, "<s>", "</s>").render(messages or USER, **arguments)


def test_chatml() -> None:
    assert render(templates.CHATML) == (
        "<|im_start|>system\nBe helpful.<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert not render(templates.CHATML, add_generation_prompt=False).endswith("assistant\n")


def test_loop_controls_and_namespaces() -> None:
    messages = [{"role": "system", "content": "S"}, *USER, {"role": "assistant", "content": "A"}]
    expected = "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nhi [/INST] A</s>"
    assert render(templates.LLAMA2, messages) == expected


def test_tools_arguments_and_template_arguments() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "<&> \u20ac"}}
    call = {"function": {"name": "f", "arguments": '{"x": [1, "\u20ac"]}'}}
    messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    text = render(templates.TOOLS, messages, tools=[tool], enable_thinking=False)
    assert '"description": "<&> \u20ac"' in text
    assert '"arguments": {\n  "x": [\n    1,\n    "\u20ac"\n  ]\n}}' in text
    assert text.endswith("<think>\n\n</think>\n\n")


def test_a_templates_own_error_reaches_the_user() -> None:
    messages = [{"role": "system", "content": "S"}]
    with pytest.raises(BadInput, match="refuses: System role not supported"):
        render(templates.GEMMA, messages)


def test_strftime_and_dict_and_tojson_arguments() -> None:
    assert render("{{ strftime_now('%Y') }}") == time.strftime("%Y")
    assert render("{{ dict(a=1)|tojson(separators=(',', ':')) }}") == '{"a":1}'
    assert render("{{ {'b': 1, 'a': '\u20ac'}|tojson(ensure_ascii=True, sort_keys=True) }}") == (
        '{"a": "\\u20ac", "b": 1}'
    )


def test_bos_and_eos_and_documents() -> None:
    source = "{{ bos_token }}{{ documents[0].text }}{{ eos_token }}"
    assert render(source, documents=[{"text": "d"}]) == "<s>d</s>"


def test_parts_are_handed_over_or_joined() -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"type": "text", "text": "c"}]
    messages = [{"role": "user", "content": parts}]
    assert "user\nabc<|im_end|>" in render(templates.CHATML, messages)
    image = [{"role": "user", "content": [{"type": "image"}, *parts]}]
    assert "user\n[image]abc<|im_end|>" in render(templates.PARTS, image)
    with pytest.raises(BadInput, match=r"part of type 'image'.*reads text only"):
        render(templates.CHATML, image)


@pytest.mark.parametrize("content", ["I go on", "I go on  ", "on"])
def test_continuing_the_final_message(content: str) -> None:
    messages = [*USER, {"role": "assistant", "content": content}]
    arguments = {"add_generation_prompt": False, "continue_final_message": True}
    assert render(templates.CHATML, messages, **arguments).endswith("assistant\n" + content)
    assert render(templates.GEMMA, messages, **arguments).endswith("model\n" + content.rstrip())
    with pytest.raises(BadInput, match="one of them"):
        render(templates.CHATML, messages, continue_final_message=True)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "empty"),
        ("hi", "must be a list"),
        ({"role": "user"}, "must be a list"),
        (["hi"], r"messages\[0\] must be an object"),
        ([{"content": "x"}], r"messages\[0\].role"),
        ([{"role": 3, "content": "x"}], r"messages\[0\].role"),
        ([*USER, {"role": "user", "content": 3}], r"messages\[1\].content"),
        ([{"role": "user", "content": "x", "extra": object()}], "holds a object"),
        ([{"role": "user", "content": "\ud800"}], "lone surrogate"),
    ],
)
def test_messages_that_are_none(messages: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        ChatTemplate(templates.CHATML).render(messages)


def test_nesting_without_end_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadInput, match="nested more than"):
        render(templates.CHATML, [{"role": "user", "content": "x", "more": loop}])


BIG = "{% set x = 'a' * 1000000 %}"
RANGE = "range(100000)"
DOUBLING = {
    "list": ("['a']", "[x, x]"),
    "tuple": ("('a',)", "(x, x)"),
    "dict": ("{'a': 1}", "{'a': x, 'b': x}"),
    "dict call": ("{'a': 1}", "dict(a=x, b=x)"),
    "times": ("['a']", "[x] * 2"),
    "plus": ("['a']", "x + x"),
    "string": ("'ab'", "x + x"),
    "concat": ("'ab'", "x ~ x"),
    "join": ("'ab'", "[x, x]|join"),
    "format": ("'ab'", "'%s%s' % (x, x)"),
    "str.format": ("'ab'", "'{}{}'.format(x, x)"),
    "replace": ("'ab'", "'yy'.replace('y', x)"),
    "macro": ("'ab'", "m(x)"),
}
TOO_MUCH = {
    "repeat": "{{ 'a' * 10**9 }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent key": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "format nested": "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "format map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "format filter": "{{ '%1000000000d'|format(1) }}",
    "center": "{{ 'a'.center(10**9) }}",
    "center filter": "{{ 'a'|center(10**9) }}",
    "filter block": "{% filter center(10**9) %}a{% endfilter %}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "expandtabs": "{{ ('\t' * 100000).expandtabs(65000) }}",
    "indent": "{{ 'a\nb'|indent(10**9) }}",
    "indent lines": "{{ ('\n' * 100000)|indent(60000) }}",
    "json indent": "{{ [1]|tojson(indent=10**9) }}",
    "batch": "{{ [1]|batch(10**9, 'x')|list }}",
    "round": "{{ 1.5|round(10**9) }}",
    "replace": BIG + "{{ x.replace('a', x) }}",
    "replace filter": BIG + "{{ x|replace('a', x) }}",
    "replace nothing": BIG + "{{ x.replace('', x) }}",
    "join": BIG + "{{ x|join(x) }}",
    "str.join": BIG + "{{ x.join(x) }}",
    "join mapped": BIG + f"{{{{ {RANGE}|map('replace', '1', x)|join }}}}",
    "list mapped": BIG + f"{{{{ {RANGE}|map('replace', '1', x)|list|length }}}}",
    "write in a loop": BIG + f"{{% for i in {RANGE} %}}{{{{ x }}}}{{% endfor %}}",
    "fixed text in a loop": f"{{% for i in {RANGE} %}}{'y' * 50000}{{% endfor %}}",
    "power": "{{ 99999 ** 99999 }}",
    "squares": f"{{% set ns = namespace(n=3) %}}{{% for i in {RANGE} %}}"
    "{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "nested loops": f"{{% for i in {RANGE} %}}" * 3 + "{% endfor %}" * 3,
    "recursion": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "long date": "{{ strftime_now('%1000000000d') }}",
    **{
        f"doubling by {name}": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}"
        f"{{% set x = {start} %}}" + f"{{% set x = {step} %}}" * 60 + "{{ x }}"
        for name, (start, step) in DOUBLING.items()
    },
}


@pytest.mark.parametrize("name", sorted(TOO_MUCH))
def test_endless_and_huge_templates_are_cut(name: str) -> None:
    with pytest.raises(BadInput, match=r"was stopped: it"):
        render(TOO_MUCH[name])


def test_branching_recursion_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock or the steps, whichever the machine reaches first."""
    monkeypatch.setattr("pellucid.text.sandbox.MAX_STEPS", 10_000)
    branching = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    with pytest.raises(BadInput, match="was stopped: it takes"):
        render(branching + "{{ m(100) }}")


def test_the_clock_cuts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.text.sandbox.MAX_SECONDS", 0.0)
    with pytest.raises(BadInput, match="more than 0 seconds"):
        render(templates.CHATML)


ESCAPES = {
    "class": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "namespace": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "namespace call": "{% set ns = namespace(_x=1) %}",
    "big int": "{{ (1).to_bytes(1000000000, 'big') }}",
    "translate": "{{ ('a' * 100000).translate({97: 'b' * 100000}) }}",
    "append": "{{ messages.append(1) }}",
    "update": "{{ messages[0].update(role='system') }}",
    "lipsum": "{{ lipsum(n=10**6) }}",
    "include": "{% include 'x' %}",
    "import": "{% import 'os' as os %}",
    "sum of lists": "{{ range(100000)|map('list')|sum(start=[]) }}",
    "undefined": "{{ nobody.knows.me }}",
    "undefined call": "{{ nobody() }}",
    "wrong types": "{{ messages + 1 }}",
    "range": "{{ range(10**9) }}",
}


@pytest.mark.parametrize("name", sorted(ESCAPES))
def test_what_is_not_allowed_is_an_error(name: str) -> None:
    with pytest.raises(BadInput, match=r"the chat template (refuses|failed|was stopped)"):
        render(ESCAPES[name])


@pytest.mark.parametrize(
    "source",
    ["{{ ''|attr('__class__') }}", "{{ '{0.__class__}'.format(messages) }}"],
)
def test_internals_read_as_nothing(source: str) -> None:
    assert render(source) == ""


def test_counters_cannot_be_redefined() -> None:
    redefined = "{% set build = 1 %}{% set join_text = 1 %}{% set count_step = 1 %}"
    with pytest.raises(BadInput, match="was stopped"):
        render(redefined + "{% set x = 'ab' %}" + "{% set x = x ~ x %}" * 60)


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ 'a' ",
        "{% for x in y %}",
        "{% unknown %}",
        "{{ a|nofilter }}",
        "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
        "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
        "{% for a in b %}" * 100 + "{% endfor %}" * 100,
    ],
)
def test_templates_that_do_not_parse(source: str) -> None:
    with pytest.raises(BadInput, match="does not parse"):
        ChatTemplate(source)


def test_a_huge_source_is_refused() -> None:
    with pytest.raises(BadInput, match="too long: 10000000 characters"):
        ChatTemplate("a" * 10**7)


def test_a_long_conversation_is_no_attack() -> None:
    messages = [{"role": ("user", "assistant")[i % 2], "content": "x" * 500} for i in range(2000)]
    assert len(render(templates.CHATML, messages)) > 1_000_000
    assert render(templates.CHATML, [{"role": "user", "content": "y" * 2_000_000}])


NAMING = (
    "{% for m in messages %}{% if m.role == 'user' and m.name %}{{ m.name }}: {% endif %}"
    "{{ m.content }}{% endfor %}"
)


def test_whose_names_a_template_reads() -> None:
    assert ChatTemplate(NAMING).reads_names("user")
    assert not any(map(ChatTemplate(NAMING).reads_names, ("system", "assistant", "tool")))
    refusing = "{{ raise_exception('no system') if messages[0].role == 'system' }}"
    assert ChatTemplate(refusing).reads_names("system"), "what cannot be told is not refused"
    assert not ChatTemplate(templates.CHATML).reads_names("user")
