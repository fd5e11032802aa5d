"""A Ray cluster of three nodes: the same weights, also when a node is lost in between."""

from __future__ import annotations

from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes with a core each, on this machine."""
    from relfrog.cluster.ray_cluster import import_ray

    ray = import_ray()
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


class LoseNode(Callback):
    """End a node after so many steps, and note what is said."""

    def __init__(self, cluster: Any, steps: int) -> None:
        self.cluster, self.left = cluster, steps
        self.said: list[str] = []
        self.epochs: list[int] = []

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            self.cluster.remove_node(self.cluster.list_all_nodes()[-1], allow_graceful=False)

    def on_epoch(self, trainer: Trainer, record: Any) -> None:
        self.epochs.append(record.epoch)

    def on_message(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.slow
def test_a_run_goes_on_when_a_node_is_lost(cluster: Any, shop: Path, tmp_path: Path) -> None:
    settings = {"epochs": 60, "patience": 60, "fd_every": "epoch", "fd_training": True}
    one = fit(shop, tmp_path / "one", "spends", workers=1, loss="l1", **settings)
    losing = LoseNode(cluster, 8)
    run = fit(
        shop, tmp_path / "run", "spends", workers=3, cluster=cluster.address, loss="l1",
        callbacks=[losing], **settings,
    )  # fmt: skip
    assert any(text.startswith("a worker was lost: ") for text in losing.said)
    assert sorted(set(losing.epochs)) == list(range(60))
    assert weights(tmp_path / "run") == weights(tmp_path / "one")
    pd.testing.assert_frame_equal(run.predict(), one.predict(), check_exact=True)
    assert not list((tmp_path / "run").glob("*checkpoint*"))


@pytest.mark.slow
def test_an_error_on_the_cluster_is_one_sentence(cluster: Any, shop: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the (gradient|loss) is .* in epoch 0"):
        fit(
            shop, tmp_path / "run", "spends", workers=2, cluster=cluster.address, lr=10.0,
            clip=0.0, loss="poisson", average=0.0, epochs=40, patience=40,
        )  # fmt: skip
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 "):
        fit(shop, tmp_path / "other", workers=2, cluster="127.0.0.1:1")
