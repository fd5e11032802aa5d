"""A run of a study on a machine that sees none of our folders comes back as if made here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import small_store
from relfrog.cluster.folders import MeetingPlace
from relfrog.cluster.replica import replicate
from relfrog.experiments.study_job import is_complete, receive, run_job
from relfrog.runs.run import load_run


@pytest.fixture(scope="module")
def store(once) -> Path:
    return once("study-job", lambda folder: small_store.make_store(folder)) / "store"


def test_a_run_from_elsewhere(store: Path, tmp_path: Path, monkeypatch) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("regime: frozen\n")
    job = {
        "dataset": str(store), "task": "buys", "settings": {"model": "mean"}, "size": "small",
        "seed": 0, "preset": str(preset), "members": None, "gates": None, "differences": None,
    }  # fmt: skip
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "head"))
    assert run_job(job | {"folder": str(tmp_path / "here")}) == {}
    sent = job | {
        "folder": str(tmp_path / "there"), "replica": replicate({"dataset": store}),
        "place": MeetingPlace("/nowhere", "mark"), "preset_text": preset.read_text(),
    }  # fmt: skip
    preset.unlink()
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "node"))
    answer = run_job(sent)
    assert set(answer) == {"files"}
    assert not (tmp_path / "there").exists()
    assert list((tmp_path / "node" / "parts").glob("copy-*/store/manifest.yaml"))
    receive(sent, answer)
    assert is_complete(tmp_path / "there")
    here, there = load_run(tmp_path / "here"), load_run(tmp_path / "there")
    assert here.metrics == there.metrics
    assert there.config == here.config
    assert there.about["dataset"] == str(store)
    texts = [(tmp_path / name / "run.json").read_text() for name in ("here", "there")]
    one, two = (json.loads(text) for text in texts)
    changing = {"seconds", "peak_memory_bytes", "started", "created"}
    assert {k: v for k, v in one.items() if k not in changing} == {
        k: v for k, v in two.items() if k not in changing
    }
