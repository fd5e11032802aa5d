"""A Ray cluster of three nodes: the same weights, also when a node is lost in between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relfrog.runs.train import RunInterrupted
from relfrog.training.callbacks import Callback
from relfrog.training.trainer import Trainer
from small_store import fit, make_shop, weights

pytest.importorskip("ray", reason="Ray is not installed: pip install 'relfrog[ray]'")


@pytest.fixture(scope="module")
def shop(once: Any, store: Path) -> Path:
    """The store with one more task, a list."""
    return once("sharded-shop", lambda folder: make_shop(store, folder)) / "copy"


class Trouble(Callback):
    """Kill a node after some steps; Ctrl-C some epochs after that. Notes what is said."""

    def __init__(self, nodes: Any) -> None:
        self.nodes, self.left = nodes, 8
        self.said: list[str] = []

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            self.nodes.kill("third")

    def on_epoch(self, trainer: Trainer, record: Any) -> None:
        if self.said and record.epoch >= 10:
            raise KeyboardInterrupt

    def on_message(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("RELFROG_TEST_NODES"),
    reason="Ray waits a minute for a lost node, twice: RELFROG_TEST_NODES=1 runs it",
)
def test_a_run_goes_on_when_a_node_is_lost_and_when_it_is_interrupted(
    nodes: Any, shop: Path, tmp_path: Path
) -> None:
    """Learned roles, both phases: begun by three workers, then those left, resumed by others."""
    settings = {
        "epochs": 16,
        "patience": 16,
        "fd_every": "epoch",
        "fd_training": True,
        "loss": "l1",
    }
    one = fit(shop, tmp_path / "one", "spends", workers=1, **settings)
    cluster = {"cluster": nodes.address, **settings}
    trouble = Trouble(nodes)
    with pytest.raises(RunInterrupted, match=r"Go on with: relfrog train .* --resume"):
        fit(shop, tmp_path / "run", "spends", workers=3, callbacks=[trouble], **cluster)
    assert trouble.said[0].startswith("a worker was lost: 2 go on from epoch ")
    run = fit(shop, tmp_path / "run", "spends", workers=2, resume=True, **cluster)
    assert weights(tmp_path / "run") == weights(tmp_path / "one")
    pd.testing.assert_frame_equal(run.predict(), one.predict(), check_exact=True)
    assert not list((tmp_path / "run").glob("*checkpoint*"))
