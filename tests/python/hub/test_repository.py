"""Repositories of the hub: fetched whole, found again without a network, refetched when damaged."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from pellucid.core.errors import BadInput, FetchError
from pellucid.hub import list_models, pull, resolve, resolve_config
from pellucid.hub.listing import SHARD_INDEX
from tests.python.hub.fake_hub import FakeHub

MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b'{"version": "1.0"}' + b" " * 2000,
    "model.safetensors": os.urandom(5000),
    "pytorch_model.bin": os.urandom(5000),
    "README.md": b"# A model",
}
SHARDED = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    SHARD_INDEX: json.dumps(
        {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    ).encode(),
    "one.safetensors": os.urandom(3000),
    "two.safetensors": os.urandom(3000),
    "consolidated.safetensors": os.urandom(3000),
}
GGUFS = {"m-Q4_K_M.gguf": os.urandom(4000), "m-Q8_0.gguf": os.urandom(8000)}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_fetches_what_a_model_needs_and_nothing_else(hub: FakeHub) -> None:
    hub.files.update(MODEL)
    folder = resolve("owner/name")
    assert names_in(folder) == {"config.json", "tokenizer.json", "model.safetensors"}
    for name in names_in(folder):
        assert (folder / name).read_bytes() == MODEL[name]


def test_is_found_again_without_a_question(hub: FakeHub) -> None:
    hub.files.update(MODEL)
    folder = resolve("owner/name")
    asked = len(hub.requests)
    assert resolve("owner/name") == folder
    assert resolve("owner/name", offline=True) == folder
    assert len(hub.requests) == asked


def test_other_tools_find_it_in_the_shared_cache(hub: FakeHub, places: Path) -> None:
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    hub.files.update(MODEL)
    folder = resolve("owner/name")
    cache = places / "hf" / "hub"
    found = try_to_load_from_cache("owner/name", "model.safetensors", cache_dir=cache)
    assert found == str(folder / "model.safetensors")
    report = scan_cache_dir(cache)
    assert [repo.repo_id for repo in report.repos] == ["owner/name"]
    assert not report.warnings


def test_what_another_tool_left_in_the_cache_is_used(hub: FakeHub, places: Path) -> None:
    hub.files.update(MODEL)
    folder = resolve("owner/name")
    for record in (places / "home").rglob("*.json"):
        record.unlink()
    asked = len(hub.requests)
    assert resolve("owner/name", offline=True) == folder
    assert len(hub.requests) == asked


def test_a_model_that_another_tool_left_without_its_tokenizer_is_completed(
    hub: FakeHub, places: Path
) -> None:
    hub.files.update(MODEL)
    folder = resolve("owner/name")
    for record in (places / "home").rglob("*.json"):
        record.unlink()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FetchError, match="not in the cache"):
        resolve("owner/name", offline=True)
    assert (resolve("owner/name") / "tokenizer.json").read_bytes() == MODEL["tokenizer.json"]


def test_a_configuration_is_fetched_without_weights_and_is_no_model(hub: FakeHub) -> None:
    hub.files.update(SHARDED)
    folder = resolve_config("owner/name")
    assert names_in(folder) == {"config.json", "tokenizer.json", SHARD_INDEX}
    whole = resolve("owner/name")  # what came of it is not taken for the model
    assert names_in(whole) == names_in(folder) | {"one.safetensors", "two.safetensors"}
    asked = len(hub.requests)
    assert resolve_config("owner/name") == whole
    assert len(hub.requests) == asked


def test_of_gguf_files_there_is_no_part_to_fetch(hub: FakeHub) -> None:
    hub.files.update(GGUFS)
    assert resolve_config("owner/name").read_bytes() == GGUFS["m-Q4_K_M.gguf"]


def test_shards_are_those_of_the_index(hub: FakeHub) -> None:
    hub.files.update(SHARDED)
    folder = resolve("owner/name")
    assert names_in(folder) == set(SHARDED) - {"consolidated.safetensors"}
    assert resolve("owner/name", offline=True) == folder


def test_gguf_by_preference_by_quantisation_and_by_name(hub: FakeHub) -> None:
    hub.files.update(GGUFS)
    assert resolve("owner/name").read_bytes() == GGUFS["m-Q4_K_M.gguf"]
    assert resolve("owner/name:q8_0").read_bytes() == GGUFS["m-Q8_0.gguf"]
    assert resolve("owner/name/m-Q8_0.gguf", offline=True).name == "m-Q8_0.gguf"
    with pytest.raises(BadInput, match=r"no Q5_0 file; it holds m-Q4_K_M.gguf, m-Q8_0.gguf"):
        resolve("owner/name:Q5_0")


def test_revisions_are_kept_apart_and_pull_brings_the_newest(hub: FakeHub) -> None:
    hub.files.update(GGUFS)
    hub.revisions = ("main", "dev")
    first = resolve("owner/name")
    hub.commit = "f" * 40
    hub.files["m-Q4_K_M.gguf"] = b"new" * 1000
    assert resolve("owner/name") == first
    newest = pull("owner/name")
    assert newest.read_bytes() == b"new" * 1000
    assert resolve("owner/name") == newest
    assert resolve("owner/name@dev") == newest
    assert resolve("owner/name@" + "0123456789abcdef" * 2 + "01234567", offline=True) == first
    with pytest.raises(BadInput, match="no revision 'v9'"):
        resolve("owner/name@v9")


def test_a_damaged_file_is_found_and_fetched_again(hub: FakeHub) -> None:
    hub.files.update(MODEL)
    weights = resolve("owner/name") / "model.safetensors"
    blob = weights.resolve()
    blob.write_bytes(bytes(5000))
    with pytest.raises(FetchError, match=r"is damaged there.*pellucid pull owner/name"):
        resolve("owner/name", offline=True)
    assert resolve("owner/name") / "model.safetensors" == weights
    assert weights.read_bytes() == MODEL["model.safetensors"]
    assert len(hub.file_requests("model.safetensors")) == 2
    assert len(hub.file_requests("tokenizer.json")) == 1


def test_pull_hashes_what_looks_unchanged(hub: FakeHub) -> None:
    hub.files.update(GGUFS)
    path = resolve("owner/name")
    facts = path.stat()
    path.resolve().write_bytes(bytes(4000))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert resolve("owner/name").read_bytes() == bytes(4000)  # size and time as recorded
    assert pull("owner/name").read_bytes() == GGUFS["m-Q4_K_M.gguf"]


def test_a_short_file_is_noticed_by_its_size(hub: FakeHub) -> None:
    hub.files.update(GGUFS)
    path = resolve("owner/name")
    os.truncate(path.resolve(), 100)
    assert resolve("owner/name").read_bytes() == GGUFS["m-Q4_K_M.gguf"]


def test_an_interrupted_fetch_leaves_the_model_of_before(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files.update(MODEL)
    first = resolve("owner/name")
    hub.commit = "e" * 40
    hub.files["model.safetensors"] = os.urandom(6000)
    hub.statuses = [403]
    with pytest.raises(FetchError):
        pull("owner/name")
    assert resolve("owner/name", offline=True) == first
    assert pull("owner/name").name == "e" * 40


def test_wrong_bytes_from_the_hub_are_refused(hub: FakeHub, places: Path) -> None:
    hub.files.update(GGUFS)
    hub.sent_instead["m-Q4_K_M.gguf"] = bytes(4000)
    with pytest.raises(FetchError, match=r"m-Q4_K_M.gguf: the bytes received"):
        resolve("owner/name")
    assert not list((places / "hf").rglob("*.gguf"))


def test_names_that_leave_the_folder_are_refused(hub: FakeHub, places: Path) -> None:
    hub.files.update(GGUFS)
    hub.extra_names = ["../../../../escaped.gguf"]
    with pytest.raises(FetchError, match="escaped"):
        resolve("owner/name")
    assert not list(places.rglob("*escaped*"))


def test_a_repository_without_usable_weights_says_which_it_has(hub: FakeHub) -> None:
    hub.files.update({"config.json": b"{}", "pytorch_model.bin": bytes(3000)})
    with pytest.raises(BadInput, match="pickle"):
        resolve("owner/name")
    hub.files = {"README.md": b"nothing"}
    with pytest.raises(BadInput, match="neither"):
        resolve("owner/name")


def test_an_unknown_repository_and_a_hub_in_trouble(hub: FakeHub) -> None:
    with pytest.raises(BadInput, match="no such repository"):
        resolve("other/name")
    hub.api_status = 500
    with pytest.raises(FetchError, match="500"):
        resolve("owner/name")


def test_a_hub_out_of_reach_is_one_line() -> None:
    with pytest.raises(FetchError, match="refused") as caught:
        resolve("owner/name")
    assert "\n" not in str(caught.value)


def test_offline_asks_nobody(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files.update(GGUFS)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FetchError, match=r"fetching is off .* run `pellucid pull owner/name`"):
        resolve("owner/name")
    assert hub.requests == []


def test_two_at_once_fetch_once(hub: FakeHub) -> None:
    hub.files.update(GGUFS)
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(resolve("owner/name"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(hub.file_requests("m-Q4_K_M.gguf")) == 1


def test_where_links_are_refused_the_file_itself_is_put_there(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: str) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    hub.files.update(MODEL)
    folder = resolve("owner/name")
    assert not (folder / "model.safetensors").is_symlink()
    assert (folder / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
    asked = len(hub.requests)
    assert resolve("owner/name") == folder
    assert len(hub.requests) == asked


def test_a_cache_that_cannot_be_written_is_an_error_not_a_traceback(
    hub: FakeHub, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "file").write_text("")
    hub.files.update(GGUFS)
    monkeypatch.setenv("PELLUCID_HOME", str(places / "file" / "home"))
    with pytest.raises(FetchError, match="PELLUCID_HOME"):
        resolve("owner/name")


def test_lists_what_is_here(hub: FakeHub) -> None:
    hub.files.update({**MODEL, **GGUFS})
    resolve("owner/name")
    resolve("owner/name:Q8_0")
    rows = {row.name: row for row in list_models()}
    assert rows["smollm2-135m"].path is None
    assert rows["owner/name"].size == sum(
        len(MODEL[name]) for name in ("config.json", "tokenizer.json", "model.safetensors")
    )
    assert rows["owner/name/m-Q8_0.gguf"].size == 8000
    assert "owner/name/m-Q4_K_M.gguf" not in rows
