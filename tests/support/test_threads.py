"""The same numbers on any number of cores, threads and workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import torch
from relbench.base import Database, Table

from relfrog.config import Config
from relfrog.datasets import labels
from relfrog.experiments.grid import Cell
from relfrog.experiments.study_datasets import StudyDataset
from relfrog.runs.run import load_run
from relfrog.support.threads import thread_limit
from small_store import fit

#: Large enough for PyTorch to share the work among its threads.
LARGE = {"channels": 64, "batch_size": 512, "neighbors": 16, "epochs": 1, "text_channels": 32}
CODE = """
    import functools, hashlib, json, sys
    import numpy as np, torch
    import relfrog, relfrog.training.prepared
    from relfrog.graph.loader import Loader
    from relfrog.models.boosting import BoostedTrees
    from relfrog.models.rankers import BoostedRanker
    from small_store import fit, weights
    BoostedTrees.ROUNDS = BoostedRanker.ROUNDS = 30
    store, out, workers = sys.argv[1:]
    relfrog.training.prepared.Loader = functools.partial(Loader, workers=int(workers))
    found = {"threads": torch.get_num_threads()}
    run = fit(store, f"{out}/frog", **LARGE)
    digest = hashlib.sha256(b"".join(value for _, value in sorted(weights(run.folder).items())))
    found["weights"], found["frog"] = digest.hexdigest(), run.predict()["prediction"].tolist()
    for task, name in (("buys", "prediction"), ("spends", "prediction"), ("list", "score")):
        made = fit(store, f"{out}/{task}", task, model="lightgbm", trials=1, epochs=1)
        found[task] = made.predict()[name].tolist()
    print(json.dumps(found))
"""


def answers(shop: Path, out: Path, threads: int, workers: int) -> dict[str, Any]:
    """What a process with so many threads learns and predicts."""
    code = textwrap.dedent(CODE).replace("LARGE", repr(LARGE))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code, str(shop), str(out), str(workers)],
        capture_output=True, text=True, timeout=300,
        env={**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONPATH": path},
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_neither_threads_nor_workers_change_a_bit(shop: Path, tmp_path: Path) -> None:
    one = answers(shop, tmp_path / "one", 1, 1)
    two = answers(shop, tmp_path / "two", 2, 2)
    assert (one.pop("threads"), two.pop("threads")) == (1, 2)
    assert one == two
    assert len(one["frog"]) == 20


def test_threads_are_those_of_the_setting_and_then_those_of_before() -> None:
    before = torch.get_num_threads()
    for count in (1, 2):
        with thread_limit(count):
            assert torch.get_num_threads() == count
            with thread_limit(3):
                assert torch.get_num_threads() == 3
            assert torch.get_num_threads() == count
        assert torch.get_num_threads() == before
    with pytest.raises(ZeroDivisionError), thread_limit(before + 1):
        _ = 1 / 0
    assert torch.get_num_threads() == before


@pytest.mark.slow
def test_the_setting_reaches_training_and_prediction(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relfrog.nn.network import Network

    seen: list[int] = []
    forward = Network.forward

    def noting(network: Network, *given: Any) -> Any:
        seen.append(torch.get_num_threads())
        return forward(network, *given)

    monkeypatch.setattr(Network, "forward", noting)
    run = fit(store, tmp_path / "run", epochs=1, threads=3)
    assert set(seen) == {3}
    seen.clear()
    again = load_run(run.folder)
    again.predict()
    again.evaluate("val")
    from relfrog.analysis import explain

    explain(again, "P03")
    assert set(seen) == {3}
    assert json.loads((run.folder / "run.json").read_text())["versions"]["threads"] == "3"


def test_labels_do_not_depend_on_the_number_of_cores() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": np.arange(500_000),
            "who": rng.integers(0, 9, 500_000),
            "x": rng.normal(size=500_000),
        }
    )
    db = Database({"t": Table(frame, {}, "id", None)})
    sql = "SELECT timestamp, who, sum(x) AS y FROM timestamps, t GROUP BY ALL"
    time = pd.DatetimeIndex(["2020-01-01"])
    found = [labels.run_sql(sql, db, time, pd.Timedelta("1 day")) for _ in range(3)]
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("t", frame)
    found.append(connection.execute(sql.replace("timestamps", "(SELECT 0 AS timestamp)")).df())
    for other in found[1:]:
        assert other["y"].tolist() == found[0]["y"].tolist()


def test_a_run_of_an_experiment_is_called_the_same_with_the_default_number() -> None:
    place = StudyDataset("x", "x", {"t": "regression"}, frozenset(), {"t": "print"})

    def key(**settings: Any) -> str:
        return Cell(place, "t", "v", settings, 0).key()

    assert key(threads=Config().threads) == key()
    assert key(threads=2) != key()
    assert key(model="lightgbm", threads=2) == key(model="lightgbm")
