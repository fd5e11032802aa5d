"""A Ray cluster of three nodes: the same weights, also when a node is lost in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relfrog.cluster.ray_cluster import connect
from relfrog.runs.train import RunInterrupted
from relfrog.training.callbacks import Callback
from relfrog.training.trainer import Trainer
from small_store import fit, make_shop, weights

pytest.importorskip("ray", reason="Ray is not installed: pip install 'relfrog[ray]'")


@pytest.fixture(scope="module")
def shop(once: Any, store: Path) -> Path:
    """The store with one more task, a list."""
    return once("sharded-shop", lambda folder: make_shop(store, folder)) / "copy"


class Watch(Callback):
    """Do something after so many steps, and note what is said."""

    def __init__(self, steps: int, act: Callable[[], None]) -> None:
        self.left, self.act = steps, act
        self.said: list[str] = []
        self.epochs: list[int] = []

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()

    def on_epoch(self, trainer: Trainer, record: Any) -> None:
        self.epochs.append(record.epoch)

    def on_message(self, text: str) -> None:
        self.said.append(text)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_run_goes_on_when_it_is_interrupted_and_a_node_is_lost(
    nodes: Any, shop: Path, tmp_path: Path
) -> None:
    """Learned roles, both phases: begun by two workers, resumed by three, ended by those left."""
    settings = {
        "epochs": 20,
        "patience": 20,
        "fd_every": "epoch",
        "fd_training": True,
        "loss": "l1",
    }
    one = fit(shop, tmp_path / "one", "spends", workers=1, **settings)
    cluster = {"cluster": nodes.address, **settings}
    with pytest.raises(RunInterrupted, match=r"Go on with: relfrog train .* --resume"):
        fit(shop, tmp_path / "run", "spends", workers=2, callbacks=[Watch(8, interrupt)], **cluster)
    with connect(nodes.address) as joined:  # until nobody of the interrupted run is left
        end = time.monotonic() + 60
        while joined.ray.available_resources().get("CPU", 0) < 3 and time.monotonic() < end:
            time.sleep(0.2)
    losing = Watch(8, lambda: nodes.kill("third"))
    run = fit(
        shop, tmp_path / "run", "spends", workers=3, callbacks=[losing], resume=True, **cluster
    )
    assert any(text.startswith("a worker was lost: ") for text in losing.said)
    assert losing.epochs[0] > 0
    assert losing.epochs[-1] == 19
    assert weights(tmp_path / "run") == weights(tmp_path / "one")
    pd.testing.assert_frame_equal(run.predict(), one.predict(), check_exact=True)
    assert not list((tmp_path / "run").glob("*checkpoint*"))
