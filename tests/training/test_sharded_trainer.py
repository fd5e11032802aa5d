"""Training in shards: who computes a piece changes nothing; the pieces add up to the batch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import relfrog
from helpers import examples
from lockstep import together
from relfrog.config import resolve
from relfrog.datasets.tasks import load_task
from relfrog.errors import RelFrogWarning, RunError
from relfrog.store.parts import versions
from relfrog.training.callbacks import Callback
from relfrog.training.collective import ALONE, Collective
from relfrog.training.opened_task import OpenedTask
from relfrog.training.sharded_trainer import ShardedTrainer
from relfrog.training.shards import FEWEST, cut_batch, pieces_of, usual_shards
from relfrog.training.trainer import Trainer
from small_store import QUICK, make_shop, weights

#: As the authors have the regulariser: in a pass of its own, in which gates move.
PASS = {"fd_every": "epoch", "fd_training": True, "fd_final": True, "fd_seeds": 8,
        "fd_directions": "both", "gate_mean": "all"}  # fmt: skip


@pytest.fixture(scope="module")
def shop(once: Any, store: Path) -> Path:
    """The store with one more task, a list."""
    return once("sharded-shop", lambda folder: make_shop(store, folder)) / "copy"


def trainer(
    dataset: Path, folder: Path, task: str = "buys", collective: Collective = ALONE,
    kind: type[Trainer] = ShardedTrainer, **settings: Any,
) -> Any:  # fmt: skip
    opened = relfrog.open_dataset(dataset)
    loaded = load_task(opened, task)
    ours = OpenedTask(loaded.dataset, loaded)
    quick = {k: v for k, v in QUICK.items() if k != "epochs"} | {"epochs": 2, "layers": 2}
    given = {"model": "frog", **quick, "shards": 4, "loss": "l1", **settings}
    if kind is Trainer:
        given["shards"] = 1
    config = resolve(100, settings=given, kind=ours.kind)
    folder.mkdir(parents=True, exist_ok=True)
    more = {"collective": collective} if kind is ShardedTrainer else {}
    return kind(ours.prepare(config), folder, **more)


def trained(dataset: Path, folder: Path, workers: int, *args: Any, **settings: Any) -> Path:
    """The folder of a training by so many workers in lockstep; only the first writes."""

    def work(collective: Collective) -> None:
        one = trainer(
            dataset, folder / str(collective.rank), *args, collective=collective, **settings
        )
        one.fit()

    together(workers, work)
    for rank in range(1, workers):
        assert list((folder / str(rank)).iterdir()) == []
    return folder / "0"


def told(folder: Path) -> list[dict[str, Any]]:
    """What `history.jsonl` says but for the time that it took."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("buys", {"dropout": 0.3, "average": 0.9}),
        ("buys", {**PASS, "class_weight": "balanced"}),
        ("spends", {"sharing": "separate", "staleness": 0.5}),
        ("wants", {"fd_final": True, "fd_seeds": 8}),
        ("sorts", {"model": "sage"}),
        ("list", {"batch_size": 32, "steps_per_epoch": 4, "sharing": "separate"}),
        ("list", {"batch_size": 32, "steps_per_epoch": 4, "sharing": "separate", "model": "id-gnn"}),
    ],
    ids=str,
)  # fmt: skip
def test_any_number_of_workers_gives_the_same_weights(
    task: str, settings: dict[str, Any], shop: Path, tmp_path: Path
) -> None:
    alone = trained(shop, tmp_path / "1", 1, task, **settings)
    gates = told(alone)[-1]["gates"]
    assert (settings.get("model") in ("sage", "id-gnn")) == (not gates)
    assert all(gate != 0.5 for gate in gates.values())
    for workers in (2, 3, 5):  # five are more than there are pieces
        others = trained(shop, tmp_path / str(workers), workers, task, **settings)
        assert weights(others) == weights(alone)
        assert told(others) == told(alone)


@pytest.mark.parametrize("task", ["buys", "spends", "wants", "sorts", "list"])
def test_pieces_add_up_to_the_batch(task: str, shop: Path, tmp_path: Path) -> None:
    """The gradient of the loss, where nothing is drawn at random and no subgraph is cut."""
    settings = {
        "dropout": 0.0, "column_dropout": 0.0, "gamma": 0.0, "beta": 0.01, "fd_pairs": 0,
        "sharing": "separate" if task == "list" else "unrolled", "clip": 0.0, "alpha": 1.0,
        "class_weight": "balanced", "batch_size": 64,
    }  # fmt: skip
    found = []
    for kind in (Trainer, ShardedTrainer):
        one = trainer(shop, tmp_path / kind.__name__, task, kind=kind, **settings)
        if task == "list":
            one.network.head.NEGATIVES = 1 << 20  # all targets, so that none are drawn
        one.optimizer = torch.optim.SGD(one.network.parameters(), lr=0.0)
        plan = next(iter(one.batches(one.loader)))
        loss = one.train_step(plan)
        gradients = {n: p.grad for n, p in one.network.named_parameters() if p.grad is not None}
        found.append(
            (loss, gradients, one.at.sums, {p.grad for p in one.dependencies.parameters()})
        )
    (loss, whole, sums, _), (other, parts, other_sums, _) = found
    assert other == pytest.approx(loss, rel=1e-5)
    assert other_sums[:3] == pytest.approx(sums[:3], rel=1e-5)  # L_pair draws at random
    assert whole.keys() == parts.keys()
    size = max(float(gradient.abs().max()) for gradient in whole.values())
    assert size > 1e-3
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-5 * size)


def test_gates_are_averaged_over_all_rows(shop: Path, tmp_path: Path) -> None:
    """Eq. (7) moves once per layer and step, to the mean of the whole batch."""
    settings = {"dropout": 0.0, "column_dropout": 0.0, "sharing": "unrolled", "layers": 1}
    whole = trainer(shop, tmp_path / "whole", kind=Trainer, **settings)
    parts = trainer(shop, tmp_path / "parts", **settings)
    for one in (whole, parts):
        one.train_step(next(iter(one.batches(one.loader))))
    assert (whole.network.roles.average != 0.5).any()
    torch.testing.assert_close(parts.network.roles.average, whole.network.roles.average)
    assert parts.network.roles.bound.tolist() == whole.network.roles.bound.tolist()


@given(
    times=st.lists(st.integers(0, 9), max_size=80), shards=st.integers(1, 12), shares=st.booleans()
)
@examples(200)
def test_a_batch_is_cut_once_and_evenly(times: list[int], shards: int, shares: bool) -> None:
    found = cut_batch(np.array(times, np.int64), shards, shares)
    assert len(found) == shards
    assert sorted(np.concatenate(found).tolist()) == list(range(len(times)))
    assert all((np.diff(piece) > 0).all() for piece in found)
    fair = max(len(times) / shards, 1)
    assert max(map(len, found)) <= 3 * fair
    if shares:  # who is no more than a piece stays together
        for time in set(times):
            where = {n for n, piece in enumerate(found) for i in piece if times[i] == time}
            assert len(where) <= max(round(times.count(time) / fair), 1)


@given(batch=st.integers(1, 1 << 14))
@examples(100)
def test_pieces_are_few_and_large(batch: int) -> None:
    """As many as the batch has work for, whoever computes them."""
    shards = usual_shards(batch)
    assert shards >= 2
    assert shards == 2 or batch / shards >= FEWEST
    assert usual_shards(2 * batch) >= shards


@given(pieces=st.integers(0, 40), size=st.integers(1, 12))
@examples(200)
def test_pieces_are_dealt_out_once_and_fairly(pieces: int, size: int) -> None:
    """Also if each is a little more work than the one before."""
    dealt = [pieces_of(rank, size, pieces) for rank in range(size)]
    assert sorted(number for some in dealt for number in some) == list(range(pieces))
    counts = [len(some) for some in dealt]
    assert max(counts) - min(counts) <= 1
    if pieces % (2 * size) == 0:
        assert len({sum(some) for some in dealt}) == 1


class Kill(Callback):
    """The end, after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"average": 0.9, "dropout": 0.3}, PASS], ids=str)
def test_a_killed_training_goes_on_with_other_workers(
    settings: dict[str, Any], shop: Path, tmp_path: Path
) -> None:
    whole = trained(shop, tmp_path / "whole", 1, epochs=3, **settings)

    def part(steps: int) -> Callable[[Collective], None]:
        def work(collective: Collective) -> None:
            one = trainer(shop, tmp_path / "run", collective=collective, epochs=3, **settings)
            one.checkpoint_seconds = 0.0
            if collective.first:
                one.load_checkpoint()
                one.callbacks = (Kill(steps),)
            one.fit()

        return work

    for workers, steps in ((2, 3), (3, 4)):
        with pytest.raises(KeyboardInterrupt):
            together(workers, part(steps))
    together(2, part(-1))
    assert weights(tmp_path / "run") == weights(whole)
    assert told(tmp_path / "run") == told(whole)


def test_a_loss_that_is_no_number_ends_all_workers(shop: Path, tmp_path: Path) -> None:
    said = []

    def work(collective: Collective) -> None:
        one = trainer(shop, tmp_path / str(collective.rank), "spends", collective=collective)
        # Of one seed, so that one worker alone notices.
        one.targets[5] = float("nan")
        try:
            one.fit()
        except RunError as error:
            said.append(str(error))
            raise

    with pytest.raises(RunError, match=r"1 of .* labels of the batch are not finite"):
        together(2, work)
    assert len(said) == 2
    assert said[0] == said[1]


def test_a_worker_with_other_data_is_named(shop: Path, tmp_path: Path) -> None:
    def work(collective: Collective) -> None:
        one = trainer(shop, tmp_path / str(collective.rank), collective=collective)
        if collective.rank == 1:
            one.targets[3] = 1 - one.targets[3]
        one.fit()

    with pytest.raises(RunError, match=r"worker 1 on .* has other data than worker 0"):
        together(2, work)


def test_a_worker_with_other_libraries_is_named(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers would be others, and nobody would know."""
    own = dict(versions())
    found = {0: own, 1: {**own, "torch": "2.4.0"}}

    def work(collective: Collective) -> None:
        one = trainer(shop, tmp_path / str(collective.rank), collective=collective)
        # Workers take turns, and each asks when it fits.
        name = "relfrog.training.sharded_trainer.versions"
        monkeypatch.setattr(name, lambda: found[collective.rank])
        one.fit()

    words = rf"worker 1 on .* has torch 2\.4\.0 instead of {re.escape(own['torch'])}\. Install the"
    with pytest.raises(RunError, match=words):
        together(2, work)
    assert not list(tmp_path.glob("*/model.safetensors"))


def test_a_piece_that_does_not_fit_is_split(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum stays the same, but for what is drawn at random."""
    settings = {"dropout": 0.0, "column_dropout": 0.0, "sharing": "unrolled", "gamma": 0.0,
                "beta": 0.0, "epochs": 1}  # fmt: skip
    whole = trained(shop, tmp_path / "whole", 2, **settings)
    left = [2]
    real = torch.Tensor.backward

    def backward(self: torch.Tensor, *args: Any, **named: Any) -> None:
        real(self, *args, **named)
        left[0] -= 1
        if left[0] == 0:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: not enough memory")

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    with pytest.warns(RelFrogWarning, match="split into 2 micro-batches"):
        split = trained(shop, tmp_path / "split", 2, **settings)
    one, other = (told(folder)[0] for folder in (whole, split))
    assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert other["gates"] == pytest.approx(one["gates"], rel=1e-4)
