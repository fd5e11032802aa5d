"""relfrog store: what was prepared is listed, verified and removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from relfrog.cli import cli
from relfrog.errors import StoreError, UsageError
from relfrog.store.parts import open_store


def run(*words: str) -> str:
    result = CliRunner().invoke(cli, ["store", *words], catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_list_verify_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "cache"))
    assert "nothing is prepared" in run()
    for name in ("shop", "bank"):
        open_store().use(
            "graph", {"of": name}, lambda folder: (folder / "a").write_bytes(b"x" * 2000),
            lambda folder: None, f"{name} churn",
        )  # fmt: skip
    listed = run("list")
    assert "2 parts, 4 kB of at most 50.0 GB" in listed
    assert "shop churn" in listed
    assert "All 2 parts" in run("verify")
    found = json.loads(run("list", "shop", "--json"))
    assert [part["about"] for part in found["parts"]] == ["shop churn"]
    name = found["parts"][0]["name"]
    (tmp_path / "cache" / "parts" / name / "a").write_bytes(b"y" * 2000)
    with pytest.raises(StoreError, match=f"1 of 2 parts are damaged: {name}"):
        run("verify")
    with pytest.raises(UsageError, match="--all"):
        run("remove")
    with pytest.raises(StoreError, match="nothing of what"):
        run("remove", "what")
    assert "Removed 1 parts, 2 kB" in run("remove", "shop")
    assert "Removed 1 parts" in run("remove", "--all")
    assert not list(open_store().parts())
