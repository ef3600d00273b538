"""Settings: one table, four sources, and no key that is not known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pellucid import BadInput
from pellucid.server.operation import engine_arguments, settings_of
from pellucid.server.options import OPTIONS, choose, table
from pellucid.server.settings import RequestLimits, Settings

ROOT = Path(__file__).parents[3]


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text)
    return path


def test_a_flag_goes_before_the_environment_that_before_the_file_that_before_the_default(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, "port = 1\nmax_n = 1\nthreads = 1\n")
    environment = {"PELLUCID_PORT": "2", "PELLUCID_MAX_N": "2", "HOME": "/"}
    chosen = choose({"port": 3}, environment, file)
    assert (chosen["port"], chosen["max_n"], chosen["threads"]) == (3, 2, 1)
    assert chosen["host"] == "127.0.0.1"
    assert chosen.sources == {
        "port": "--port",
        "max_n": "PELLUCID_MAX_N",
        "threads": str(file),
    }


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'served_model_name = ["a", "b"]\n')
    chosen = choose({}, {"PELLUCID_CONFIG": str(file)})
    assert chosen["served_model_name"] == ("a", "b")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_is_read_alike_from_every_source(option: object, tmp_path: Path) -> None:
    given, as_toml, value = {
        "text": ("json", '"json"', "json"),
        "texts": ("a,b", '["a", "b"]', ("a", "b")),
        "count": ("7", "7", 7),
        "seconds": ("2.5", "2.5", 2.5),
        "size": ("2MiB", '"2MiB"', 2 << 20),
        "switch": ("off", "false", False),
    }[option.kind]
    if option.name == "log_level":
        given, as_toml, value = "error", '"error"', "error"
    if option.name == "speculative_method":
        given, as_toml, value = "ngram", '"ngram"', "ngram"
    if option.name == "speculative_rule":
        given, as_toml, value = "rejection", '"rejection"', "rejection"
    if option.name == "routing":
        given, as_toml, value = "round-robin", '"round-robin"', "round-robin"
    file = written(tmp_path, f"{option.name} = {as_toml}\n")
    assert choose({}, {option.variable: given})[option.name] == value
    assert choose({}, {}, file)[option.name] == value
    assert choose({option.name: given.split(",") if option.kind == "texts" else given}, {})[
        option.name
    ] == (value)


@pytest.mark.parametrize(
    ("environment", "text", "said"),
    [
        ({"PELLUCID_MAX_NUM_SEQ": "1"}, "", r"environment.*did you mean 'PELLUCID_MAX_NUM_SEQS'"),
        ({"PELLUCID_port": "1"}, "", "did you mean 'PELLUCID_PORT'"),
        ({}, "max_num_seq = 1", r"settings\.toml: 'max_num_seq'.*did you mean 'max_num_seqs'"),
        ({}, "[server]\nport = 1", "'server' is no setting"),
        ({}, "zzz = 1", "--help"),
        ({}, "port = ", "TOML"),
        ({}, "port = true", "port must be a whole number, not True"),
        ({}, 'port = "x"', "port must be a whole number"),
        ({}, "port = -1", "port must be at least 0"),
        ({}, "request_timeout = -1", "request_timeout must be a number of seconds"),
        ({}, 'log_format = "xml"', "log_format must be one of text, json"),
        ({}, 'kv_cache_memory = "2 heaps"', "size such as 512MiB"),
        ({}, "api_key = [1]", "api_key must be text"),
        ({}, "enable_prefix_caching = 1", "must be true or false"),
        ({"PELLUCID_THREADS": "0"}, "", "PELLUCID_THREADS: threads must be at least 1"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    environment: dict[str, str], text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        choose({}, environment, written(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_variables_of_others_are_left_alone() -> None:
    others = {"PELLUCID_HOME": "/", "PELLUCID_TEST_QWEN": "x", "PELLUCID_OFFLINE": "1"}
    assert choose({}, others).sources == {}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.toml: cannot be read"):
        choose({}, {}, tmp_path / "none.toml")


def test_secrets_are_not_told() -> None:
    told = choose({"api_key": ("hush",), "port": 5}, {}).told()
    assert told == {"api_key": "*** (--api-key)", "port": "5 (--port)"}


def test_defaults_are_those_of_the_application() -> None:
    settings = settings_of(choose({}, {}), "tiny")
    ours = Settings()
    assert settings.limits == RequestLimits()
    assert settings.served_model_names == ("tiny",)
    assert settings.guard.running == 32
    assert (settings.keep_alive_s, settings.stalled_client_s, settings.log_prompts) == (
        ours.keep_alive_s,
        ours.stalled_client_s,
        ours.log_prompts,
    )
    assert engine_arguments(choose({}, {})) == {
        "backend": "native",
        "enable_prefix_caching": True,
    }


def test_the_documents_list_every_option() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    [listed] = re.findall(r"<!-- options -->\n(.*?)<!-- end of options -->", page, re.DOTALL)
    assert listed == table()


@pytest.mark.parametrize("port", ["65536", "99999", "-1", "8000.0"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    """The system would take 99999 for 34463."""
    with pytest.raises(BadInput, match="port"):
        choose({"port": port}, {})
