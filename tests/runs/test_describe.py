"""What Python shows: short reprs, and progress where somebody looks on."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import relfrog
from relfrog import Config
from relfrog.training.progress import in_notebook
from small_store import TEST, fit


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> relfrog.Run:
    return fit(store, tmp_path_factory.mktemp("runs") / "run", epochs=1)


@pytest.mark.slow
def test_results_are_shown_in_a_line(run: relfrog.Run, store: Path, tmp_path: Path) -> None:
    score = run.metrics["test"]["rolling"]["roc_auc"]
    assert repr(run) == f"Run('{run.folder}': buys on store, model frog, test roc_auc {score:.4f})"
    certified = run.certify(times=1)
    certified.predict(TEST, ["P01"])
    results = [
        run, certified, certified.certificate, run.explain("P01", TEST), run.population(TEST),
        relfrog.check(store), Config(epochs=3),
    ]  # fmt: skip
    for result in results:
        assert len(repr(result)) < 400, result
        assert "\n" not in repr(result)
        assert "array(" not in repr(result)
    assert repr(Config(epochs=3, model="sage")) == "Config(model='sage', epochs=3)"
    assert repr(certified.certificate) == "Certificate(holds: 1 predictions)"
    html = run._repr_html_()
    assert f"{score:.4f}" in html
    assert "<script" not in html


def test_a_run_whose_folder_is_gone_can_still_be_shown(run: relfrog.Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "copy")
    copy = relfrog.load_run(tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy")
    assert repr(copy) == f"Run('{tmp_path / 'copy'}': buys on store, model frog)"
    assert "buys" in copy._repr_html_()


@pytest.mark.parametrize(
    ("watched", "options", "said"),
    [(True, {}, True), (True, {"quiet": True}, False), (False, {}, False),
     (True, {"callbacks": []}, False)],
)  # fmt: skip
def test_train_shows_progress_where_somebody_looks_on(
    watched: bool, options: dict[str, object], said: bool, store: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("relfrog.runs.train.is_watched", lambda: watched)
    fit(store, tmp_path / "run", epochs=1, **options)
    found = capsys.readouterr()
    assert ("epoch   0" in found.out + found.err) == said


def test_a_notebook_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    shell = SimpleNamespace(get_ipython=lambda: object())
    monkeypatch.setitem(sys.modules, "IPython", shell)  # type: ignore[arg-type]
    assert in_notebook()
