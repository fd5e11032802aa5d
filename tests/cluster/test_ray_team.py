"""A Ray cluster of three nodes: the same weights, also when a node is lost in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relfrog.errors import ClusterError, RunError
from relfrog.training.callbacks import Callback
from relfrog.training.trainer import Trainer
from small_store import fit, make_shop, weights

pytest.importorskip("ray", reason="Ray is not installed: pip install 'relfrog[ray]'")


@pytest.fixture(scope="module")
def shop(once: Any, store: Path) -> Path:
    """The store with one more task, a list."""
    return once("sharded-shop", lambda folder: make_shop(store, folder)) / "copy"


class LoseNode(Callback):
    """Kill a node after so many steps, and note what is said."""

    def __init__(self, nodes: Any, steps: int) -> None:
        self.nodes, self.left = nodes, steps
        self.said: list[str] = []
        self.epochs: list[int] = []

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            self.nodes.kill("third")

    def on_epoch(self, trainer: Trainer, record: Any) -> None:
        self.epochs.append(record.epoch)

    def on_message(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.slow
def test_a_run_goes_on_when_a_node_is_lost(nodes: Any, shop: Path, tmp_path: Path) -> None:
    settings = {"epochs": 60, "patience": 60, "fd_every": "epoch", "fd_training": True}
    one = fit(shop, tmp_path / "one", "spends", workers=1, loss="l1", **settings)
    losing = LoseNode(nodes, 8)
    run = fit(
        shop, tmp_path / "run", "spends", workers=3, cluster=nodes.address, loss="l1",
        callbacks=[losing], **settings,
    )  # fmt: skip
    assert any(text.startswith("a worker was lost: ") for text in losing.said)
    assert sorted(set(losing.epochs)) == list(range(60))
    assert weights(tmp_path / "run") == weights(tmp_path / "one")
    pd.testing.assert_frame_equal(run.predict(), one.predict(), check_exact=True)
    assert not list((tmp_path / "run").glob("*checkpoint*"))


@pytest.mark.slow
def test_an_error_on_the_cluster_is_one_sentence(nodes: Any, shop: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the (gradient|loss) is .* in epoch 0"):
        fit(
            shop, tmp_path / "run", "spends", workers=2, cluster=nodes.address, lr=10.0,
            clip=0.0, loss="poisson", average=0.0, epochs=40, patience=40,
        )  # fmt: skip
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 "):
        fit(shop, tmp_path / "other", workers=2, cluster="127.0.0.1:1")
