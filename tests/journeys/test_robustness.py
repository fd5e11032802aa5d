"""Nothing lost: killed, out of disk or out of memory at any point, a run goes on and ends the same."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import random
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import relfrog
from relfrog import load_run
from relfrog.config import Config
from relfrog.datasets import memory_check as memory
from relfrog.datasets.dataset import read_tables
from relfrog.datasets.tasks import load_task
from relfrog.errors import DatasetError, RelFrogWarning, RunError, UsageError
from relfrog.nn.network import Network
from relfrog.runs.train import RunInterrupted
from relfrog.support.memory import is_out_of_memory
from relfrog.training.callbacks import Callback
from relfrog.training.opened_task import OpenedTask
from relfrog.training.trainer import Trainer
from small_store import QUICK, change, copied, fit, weights

SETTINGS: dict[str, Any] = {"dropout": 0.3, "average": 0.9, "steps_per_epoch": 3}


class Killed(BaseException):
    """As if the process had been killed: nothing is cleaned up."""


@pytest.fixture(scope="module")
def whole(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    return fit(store, tmp_path_factory.mktemp("whole") / "run", **SETTINGS).folder


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every step."""
    trainer = functools.partial(Trainer, checkpoint_seconds=-1.0)
    monkeypatch.setattr("relfrog.models.network_model.Trainer", trainer)


@contextmanager
def fail_at(number: int, how: str) -> Iterator[list[str]]:
    """Let the writing of a file fail at its nth sync or rename; says what was done by then."""
    done: list[str] = []
    sync, rename, unlink = os.fsync, Path.replace, Path.unlink

    def point(what: str, before: Callable[[], None]) -> None:
        done.append(what)
        if len(done) == number:
            if how == "full":
                raise OSError(errno.ENOSPC, "No space left on device")
            before()
            raise Killed(what)
        if len(done) > number and how == "kill":
            raise Killed(what)

    def fsync(file: int) -> None:
        def tear() -> None:  # only half of what is new had reached the disk
            path = Path(f"/proc/self/fd/{file}")
            if path.is_dir():
                return
            written = path.read_bytes()
            lines = path.readlink().name == "history.jsonl"  # each was synced before the next came
            old = written[:-1].rfind(b"\n") + 1 if lines else 0
            os.truncate(path, (old + len(written)) // 2)

        point("sync", tear)
        sync(file)

    def replace(path: Path, target: Any) -> Any:
        point(f"rename {Path(target).name}", lambda: None)
        return rename(path, target)

    def remove(path: Path, missing_ok: bool = False) -> None:
        if how == "kill" and len(done) >= number:
            return  # the dead clean up nothing
        unlink(path, missing_ok=missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(Path, "replace", replace)
        patch.setattr(Path, "unlink", remove)
        yield done


def same(one: Path, other: Path) -> None:
    assert weights(one) == weights(other)
    for name in ("metrics.json", "roles.json", "config.yaml", "columns.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    lines = [(f / "history.jsonl").read_text().splitlines() for f in (one, other)]
    assert [len(some) for some in lines] == [2, 2]
    assert sorted(os.listdir(one)) == sorted(os.listdir(other))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "full"])
@pytest.mark.usefixtures("often")
def test_a_write_may_fail_anywhere(how: str, store: Path, whole: Path, tmp_path: Path) -> None:
    with fail_at(10**6, how) as done:
        fit(store, tmp_path / "count", **SETTINGS)
    assert len(done) > 30
    # Before that there is no run folder yet.
    first = done.index("rename checkpoint.safetensors")
    rng = random.Random()
    chosen = sorted({first, len(done), len(done) - 1, *rng.sample(range(first, len(done)), 5)})
    print(f"{how}: {chosen} of {len(done)}")
    for number in chosen:
        out = tmp_path / f"{how}-{number}"
        with fail_at(number, how) as seen:
            words = ".*" if how == "kill" else "no room left.*--resume"
            ended = pytest.raises(Killed if how == "kill" else RunError, match=words)
            # Syncing a folder is for power cuts; that a system cannot do it is no error.
            with contextlib.suppress(pytest.fail.Exception), ended:
                fit(store, out, **SETTINGS)
        assert len(seen) >= number
        assert (out / "run.json").exists(), f"{number}: {seen[number - 1]}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # of a torn checkpoint
            fit(store, out, resume=True, **SETTINGS)
        same(whole, out)


@pytest.mark.slow
def test_a_file_that_the_system_cuts_off_is_no_file(
    store: Path, whole: Path, tmp_path: Path
) -> None:
    """A real limit, in a real process: the weights do not fit."""
    code = f"""
    import resource, sys
    import relfrog
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    try:
        relfrog.train({str(store)!r}, "buys", {str(tmp_path / "run")!r}, model="frog",
                      settings={ {**QUICK, **SETTINGS}!r})
    except relfrog.errors.RunError as error:
        print(error)
    """
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300
    )
    assert "no room left to write" in done.stdout, done.stderr
    assert not list((tmp_path / "run").glob(".*partial*"))
    fit(store, tmp_path / "run", resume=True, **SETTINGS)
    same(whole, tmp_path / "run")


class Stop(Callback):
    """Ctrl-C after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "flip", "progress", "empty"])
@pytest.mark.usefixtures("often")
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    damage: str, store: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunInterrupted):
        fit(store, out, callbacks=[Stop(5)], **SETTINGS)
    path = out / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    assert (out / "checkpoint-before.safetensors").exists()
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flip":
        content[-len(content) // 3] ^= 1  # one bit, somewhere in the weights
    elif damage == "progress":
        at = content.index(b'step\\": ')
        content[at + 8] = content[at + 8] ^ 1
    else:
        content = bytearray()
    path.write_bytes(content)
    with pytest.warns(RelFrogWarning, match=r"checkpoint\.safetensors is damaged.*before"):
        fit(store, out, resume=True, **SETTINGS)
    same(whole, out)
    for name in ("checkpoint.safetensors", "checkpoint-before.safetensors"):
        assert not (out / name).exists()


@pytest.mark.usefixtures("often")
def test_two_damaged_checkpoints_are_an_error(store: Path, tmp_path: Path) -> None:
    with pytest.raises(RunInterrupted):
        fit(store, tmp_path / "run", callbacks=[Stop(3)], **SETTINGS)
    for path in (tmp_path / "run").glob("checkpoint*"):
        path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(RunError, match=r"checkpoint-before.*no checkpoint is left.*--overwrite"):
        fit(store, tmp_path / "run", resume=True, **SETTINGS)


def test_what_a_killed_process_was_writing_is_cleared_away(store: Path, tmp_path: Path) -> None:
    with pytest.raises(RunInterrupted):
        fit(store, tmp_path / "run", callbacks=[Stop(2)])
    (tmp_path / "run" / ".model.safetensors.partial-99999999").write_bytes(b"half")
    fit(store, tmp_path / "run", resume=True)
    assert not list((tmp_path / "run").glob(".*partial*"))


def test_another_number_of_threads_is_said(store: Path, tmp_path: Path) -> None:
    with pytest.raises(RunInterrupted):
        fit(store, tmp_path / "run", callbacks=[Stop(2)])
    path = tmp_path / "run" / "run.json"
    about = json.loads(path.read_text())
    about["versions"]["threads"] = "64"
    path.write_text(json.dumps(about))
    with pytest.warns(RelFrogWarning, match="begun with threads 64, now"):
        fit(store, tmp_path / "run", resume=True)


# Memory.


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_that_mean_too_little_memory(error: Exception, short: bool) -> None:
    assert is_out_of_memory(error) == short


def trainer_of(store: Path, folder: Path, **given: Any) -> Trainer:
    dataset = relfrog.open_dataset(store)
    settings = {**QUICK, "dropout": 0.0, "column_dropout": 0.0, "sharing": "separate", **given}
    folder.mkdir()
    return Trainer(
        OpenedTask(dataset, load_task(dataset, "spends")).prepare(Config(**settings)), folder
    )


def test_the_gradients_of_pieces_add_up_to_that_of_the_batch(store: Path, tmp_path: Path) -> None:
    trainer = trainer_of(store, tmp_path / "run", beta=0, gamma=0, staleness=0.5, roles="edge")
    plan = next(iter(trainer.loader.epoch(0)))
    found = {}
    for pieces in (1, 2, 3, 7):
        trainer.at.micro_batches = pieces
        loss, *_ = trainer._gradients(plan)
        grads = [p.grad.clone() for p in trainer.network.parameters() if p.grad is not None]
        found[pieces] = loss, torch.cat([g.flatten() for g in grads])
    assert float(found[1][1].abs().max()) > 1e-3
    for loss, gradient in found.values():
        assert loss == pytest.approx(found[1][0], rel=1e-5)
        assert torch.allclose(gradient, found[1][1], rtol=1e-4, atol=1e-6)


class Scarce:
    """A network for which more than so many seeds are too many."""

    def __init__(self, most: int, patch: pytest.MonkeyPatch) -> None:
        forward = Network.forward

        def limited(network: Network, plan: Any, features: Any) -> Any:
            if len(plan.batch) > most:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 GB")
            return forward(network, plan, features)

        patch.setattr(Network, "forward", limited)


@pytest.mark.slow
def test_a_batch_that_does_not_fit_is_split(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scarce(40, monkeypatch)
    with pytest.warns(RelFrogWarning, match=r"128 seeds does not fit.*split into") as said:
        run = fit(store, tmp_path / "run")
    assert [str(w.message).split(" micro-batches")[0][-1] for w in said] == ["2", "4"]
    again = load_run(run.folder)
    assert again.metrics["test"]["rolling"]["roc_auc"] > 0
    assert len(again.predict()) == 20
    with pytest.warns(RelFrogWarning, match="split"), pytest.raises(RunInterrupted):
        fit(store, tmp_path / "parts", callbacks=[Stop(4)])
    fit(store, tmp_path / "parts", resume=True)  # it remembers, and says nothing
    assert weights(tmp_path / "parts") == weights(run.folder)


def test_a_batch_of_the_second_phase_that_does_not_fit_is_split(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(store, tmp_path / "run", fd_every="epoch")
    assert trainer.dependencies is not None
    before = {k: v.clone() for k, v in trainer.dependencies.state_dict().items()}
    model = {k: v.clone() for k, v in trainer.network.state_dict().items()}
    Scarce(40, monkeypatch)
    with pytest.warns(RelFrogWarning, match=r"128 seeds does not fit.*split into") as said:
        trainer.fit_regulariser_epoch()
    assert len(said) == 2
    assert trainer.at.micro_batches == 4
    after = trainer.dependencies.state_dict()
    assert any(not torch.equal(after[k], v) for k, v in before.items())
    assert all(torch.equal(trainer.network.state_dict()[k], v) for k, v in model.items())
    trainer.fit_regulariser_epoch()  # it remembers, and says nothing


def test_a_run_whose_second_phase_waits_is_split_too(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scarce(40, monkeypatch)
    with pytest.warns(RelFrogWarning, match="does not fit"):
        run = fit(store, tmp_path / "run", fd_every="epoch", epochs=1)
    assert run.metrics["test"]["rolling"]["roc_auc"] > 0


def test_predictions_are_made_in_pieces_that_fit(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fit(store, tmp_path / "run", sharing="separate", epochs=1)
    before = run.predict()
    Scarce(3, monkeypatch)
    after = run.predict()
    assert after["code"].tolist() == before["code"].tolist()
    assert after["prediction"].to_numpy() == pytest.approx(
        before["prediction"].to_numpy(), abs=1e-6
    )


@pytest.mark.filterwarnings("ignore::relfrog.errors.RelFrogWarning")
def test_a_single_seed_that_does_not_fit_is_an_error(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scarce(0, monkeypatch)
    with pytest.raises(RunError, match=r"single seed does not fit.*--set neighbors=2"):
        fit(store, tmp_path / "run")


def test_other_errors_are_not_taken_for_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(Network, "forward", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        fit(store, tmp_path / "run")


def test_what_is_too_large_is_said_before_the_work_begins(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = read_tables(relfrog.open_dataset(store))
    named = ("channels", "layers", "batch_size", "text_channels")
    needed = memory.estimate(tables, **{name: QUICK[name] for name in named})
    assert 850 << 20 < needed < 900 << 20
    monkeypatch.setattr(memory, "total_memory", lambda: needed - 1)
    with pytest.raises(DatasetError, match=r"needs about 8\d\d MB.*largest tables: orders with"):
        fit(store, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(memory, "total_memory", lambda: needed + 1)
    monkeypatch.setattr(memory, "free_memory", lambda: needed - 1)
    with pytest.warns(RelFrogWarning, match="are free"):
        run = fit(store, tmp_path / "run", epochs=1)
    monkeypatch.setattr(memory, "total_memory", lambda: needed // 2)
    with pytest.raises(DatasetError, match="RELFROG_MEMORY=ignore"):
        load_run(run.folder).predict()


def test_whoever_knows_better_says_how_much_memory_there_is(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = read_tables(relfrog.open_dataset(store))
    monkeypatch.setattr(memory, "total_memory", lambda: 1 << 20)
    with pytest.raises(DatasetError, match="To go on all the same: RELFROG_MEMORY=ignore"):
        memory.check_room("it", tables)
    for said in ("ignore", "64", "64GB", " 2.5 gb"):
        monkeypatch.setenv("RELFROG_MEMORY", said)
        memory.check_room("it", tables)
    monkeypatch.setenv("RELFROG_MEMORY", "0.5")
    with pytest.raises(DatasetError, match="this machine has 512 MB"):
        memory.check_room("it", tables)
    for wrong in ("much", "-1", "0", "inf", "nan"):
        monkeypatch.setenv("RELFROG_MEMORY", wrong)
        with pytest.raises(UsageError, match="RELFROG_MEMORY must be a number of GB or ignore"):
            memory.check_room("it", tables)


def test_what_is_larger_needs_more(store: Path) -> None:
    tables = read_tables(relfrog.open_dataset(store))
    found = [
        memory.estimate(tables, model="recent"),
        memory.estimate(tables, model="sage", channels=16),
        memory.estimate(tables, model="frog", channels=512),
        memory.estimate(tables, model="frog", channels=512, layers=4),
        memory.estimate([replace(t, rows=10**8) for t in tables]),
    ]
    assert found == sorted(set(found))
    assert found[-1] > 10 << 30


@pytest.mark.parametrize(
    ("name", "model", "measured"),
    [
        ("rel-f1", "frog", 1024), ("rel-f1", "lightgbm", 928), ("rel-f1", "recent", 618),
        ("flights", "frog", 890), ("flights", "popularity", 749),
        ("olist-sample", "frog", 1088), ("olist-sample", "lightgbm", 769),
        ("travel-exchange", "frog", 1238), ("travel-exchange", "lightgbm", 1638),
    ],
)  # fmt: skip
def test_the_estimate_is_near_what_was_measured(
    name: str, model: str, measured: int, shared_data: Path
) -> None:
    tables = read_tables(relfrog.open_dataset(shared_data / name))
    assert 0.9 < memory.estimate(tables, model=model) / (measured << 20) < 2


def test_a_dataset_whose_keys_do_not_count_its_rows_is_an_error(
    store: Path, tmp_path: Path
) -> None:
    changed = copied(store, tmp_path)
    change(changed, "things", lambda frame: frame.iloc[::-1])
    with pytest.raises(DatasetError, match=r"things\.id: keys must be 0\.\.n-1.*relfrog check"):
        fit(changed, tmp_path / "run")
    assert not relfrog.check(changed).ok


def test_the_machine_knows_its_memory() -> None:
    if not Path("/proc/meminfo").exists():
        pytest.skip("not Linux")
    assert 0 < memory.free_memory() < memory.total_memory() < 1 << 50


# What is no number.


def spoiled(trainer: Trainer, table: str, column: str) -> None:
    names = trainer.prepared.columns.tables[table].dense_columns
    dense = trainer.features[table].dense.whole()
    dense[:, names.index(column)] = math.inf
    trainer.features[table] = replace(trainer.features[table], dense=dense)


def test_a_column_that_brings_nan_is_named(store: Path, tmp_path: Path) -> None:
    class Spoil(Callback):
        def on_step(self, trainer: Trainer, loss: float) -> None:
            if trainer.at.epoch == 1:
                spoiled(trainer, "orders", "amount")
                self.trainer = trainer

    spoil = Spoil()
    with pytest.raises(RunError, match=r"(loss|gradient) is .*orders\.amount is not finite in"):
        fit(store, tmp_path / "run", callbacks=[spoil], epochs=3)
    kept = {k: v for k, v in weights(tmp_path / "run").items() if k.startswith("network.")}
    state = spoil.trainer.network.state_dict()
    assert {f"network.{k}": v.numpy().tobytes() for k, v in state.items()} == kept
    assert all(np.isfinite(v.numpy()).all() for v in state.values())
    fit(store, tmp_path / "run", epochs=3, resume=True)  # the data are in order again


def test_a_label_that_brings_nan_is_named(store: Path, tmp_path: Path) -> None:
    trainer = trainer_of(store, tmp_path / "run")
    trainer.targets[3:9] = math.nan
    with pytest.raises(RunError, match="labels of the batch are not finite"):
        [trainer.train_step(plan) for plan in trainer.loader.epoch(0)]


def test_a_gradient_that_is_no_number_moves_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for clip in (1.0, 0.0):
        trainer = trainer_of(store, tmp_path / f"run{clip}", clip=clip)
        plan = next(iter(trainer.loader.epoch(0)))
        trainer.network.head.last.weight.register_hook(lambda grad: grad * math.nan)
        before = {k: v.clone() for k, v in trainer.network.named_parameters()}
        with pytest.raises(RunError, match=r"gradient is nan in epoch 0, step 0.*largest value"):
            trainer.train_step(plan)
        assert all(torch.equal(v, before[k]) for k, v in trainer.network.named_parameters())


def test_huge_values_in_data_do_no_harm(store: Path, tmp_path: Path) -> None:
    changed = copied(store, tmp_path)
    rng = np.random.default_rng(0)

    def spoil(frame: pd.DataFrame) -> pd.DataFrame:
        odd = [np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324]
        frame["amount"] = np.where(
            rng.random(len(frame)) < 0.3, rng.choice(odd, len(frame)), frame["amount"]
        )
        return frame

    change(changed, "orders", spoil)
    run = fit(changed, tmp_path / "run")
    assert run.predict()["prediction"].between(0, 1).all()
    lines = (run.folder / "history.jsonl").read_text().splitlines()
    assert all(math.isfinite(json.loads(line)["loss"]) for line in lines)
