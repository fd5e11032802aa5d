"""Training: reproducible to the bit, also when interrupted; what is reported is what is saved."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import relfrog
from relfrog import load_run
from relfrog.cli.run_summaries import run_summary
from relfrog.config import Config, resolve
from relfrog.datasets import source_keys
from relfrog.datasets.tasks import load_task
from relfrog.errors import RelFrogWarning, RunError, TaskError, UsageError
from relfrog.features.columns import Columns
from relfrog.models.network_model import NetworkModel
from relfrog.nn.network import Network
from relfrog.runs.train import RunInterrupted
from relfrog.support.files import locked
from relfrog.support.text import duration
from relfrog.training.budget import Budget
from relfrog.training.opened_task import OpenedTask
from relfrog.training.progress import TrainingProgress, is_watched
from relfrog.training.trainer import Callback, EpochRecord, Trainer
from small_store import HORIZON, QUICK, TASKS, VAL, copied, fit, weights, without_sql


class Stop(Callback):
    """Ctrl-C after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> relfrog.Run:
    """A run that tests only look at."""
    return fit(store, tmp_path_factory.mktemp("runs") / "run", layers=2)


def told(folder: Path) -> list[dict[str, Any]]:
    """What `history.jsonl` says but for the time that it took."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


def assert_same_run(one: Path, other: Path) -> None:
    assert weights(one) == weights(other)
    assert told(one) == told(other)
    for name in ("metrics.json", "roles.json", "config.yaml", "columns.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    about = [json.loads((folder / "run.json").read_text()) for folder in (one, other)]
    for key in ("best_epoch", "epochs", "labels", "schema", "status"):
        assert about[0][key] == about[1][key]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_and_another_another(
    store: Path, tmp_path: Path, run: relfrog.Run
) -> None:
    again = fit(store, tmp_path / "again", layers=2)
    assert_same_run(run.folder, again.folder)
    other = fit(store, tmp_path / "other", layers=2, seed=1)
    assert other.config.seed == 1
    assert weights(other.folder) != weights(run.folder)


@pytest.mark.slow
def test_what_is_saved_predicts_the_same(store: Path, tmp_path: Path) -> None:
    trained = fit(store, tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    assert loaded.config == trained.config
    assert loaded.about == trained.about
    pd.testing.assert_frame_equal(trained.predict(), loaded.predict(), check_exact=True)
    assert set(os.listdir(tmp_path / "run")) == {
        "run.json", "config.yaml", "database.json", "columns.json", "columns.safetensors", "model.safetensors",
        "roles.json", "history.jsonl", "metrics.json", "unseen.json", ".lock",
        "postprocessing.json",
    }  # fmt: skip
    modes = {path.stat().st_mode for path in (tmp_path / "run").iterdir()}
    assert len(modes) == 1  # who may read one may read all


def test_roles_survive(run: relfrog.Run) -> None:
    loaded = load_run(run.folder)
    gates = loaded.roles()["gate"].tolist()
    assert len(gates) == 4
    assert loaded.network.roles.average.tolist() == gates
    assert all(gate != 0.5 for gate in gates)
    assert [str(route) for route in loaded.prepared.routes] == loaded.roles()["route"].tolist()
    assert set(loaded.roles()["paradigm"]) == {"co-occurrence", "completion"}
    kept = told(run.folder)[run.about["best_epoch"]]["gates"]
    assert list(kept.values()) == pytest.approx(gates, abs=1e-6)


# Interruption.


@pytest.mark.slow
@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("fd_every", ["step", "epoch"])
def test_an_interrupted_run_ends_as_if_nothing_had_happened(
    fd_every: str, average: float, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        "fd_every": fd_every, "average": average, "dropout": 0.3, "epochs": 3,
        "schedule": "cosine" if average else "constant", "staleness": 0.5 if average else 0.0,
    }  # fmt: skip
    if fd_every == "epoch":  # as the paper's authors have it
        settings |= {
            "fd_training": True, "fd_final": True, "fd_seeds": 4, "fd_directions": "both",
            "encoder": "resnet", "encoder_dropout": 0.2, "optimizer": "adam",
        }  # fmt: skip
    fit(store, tmp_path / "whole", **settings)
    rng = random.Random()
    trainer = functools.partial(Trainer, checkpoint_seconds=rng.choice([0.0, 0.0, 30.0]))
    monkeypatch.setattr("relfrog.models.network_model.Trainer", trainer)
    out, first, second = tmp_path / "parts", rng.randint(1, 8), rng.randint(1, 8)
    print(f"interrupted after {first} and {second} steps: {trainer.keywords}")
    with pytest.raises(RunInterrupted, match="--resume"):
        fit(store, out, callbacks=[Stop(first)], **settings)
    with pytest.raises(RunError, match=r"has not ended.*--resume"):
        load_run(out)
    with contextlib.suppress(RunInterrupted):  # again, or it comes to its end
        fit(store, out, resume=True, callbacks=[Stop(second)], **settings)
    fit(store, out, resume=True, **settings)
    assert_same_run(tmp_path / "whole", out)
    assert not list(out.glob("*checkpoint*"))


@pytest.mark.slow
def test_an_interruption_at_the_end_of_an_epoch(store: Path, tmp_path: Path) -> None:
    class StopAfterEpoch(Callback):
        def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
            raise KeyboardInterrupt

    fit(store, tmp_path / "whole")
    for resume in (False, True):
        with pytest.raises(RunInterrupted):
            fit(store, tmp_path / "parts", callbacks=[StopAfterEpoch()], resume=resume)
    fit(store, tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.slow
def test_a_killed_process_loses_nothing(store: Path, tmp_path: Path) -> None:
    code = f"""
    import functools, sys
    import relfrog.models.network_model
    from relfrog.training.trainer import Callback, Trainer

    class Tell(Callback):
        def on_step(self, trainer, loss):
            print(trainer.at.steps, flush=True)

    relfrog.models.network_model.Trainer = functools.partial(Trainer, checkpoint_seconds=0.0)
    relfrog.train({str(store)!r}, "buys", {str(tmp_path / "parts")!r}, model="frog",
                  settings={ {**QUICK, "dropout": 0.3, "epochs": 6}!r}, callbacks=[Tell()])
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    last = random.Random().randint(2, 9)
    for line in process.stdout:
        if int(line) >= last:
            break
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL, f"after {last} steps"
    done = fit(store, tmp_path / "parts", resume=True, dropout=0.3, epochs=6)
    fit(store, tmp_path / "whole", dropout=0.3, epochs=6)
    assert_same_run(tmp_path / "whole", done.folder)


def test_without_any_whole_checkpoint_it_is_an_error(store: Path, tmp_path: Path) -> None:
    with pytest.raises(RunInterrupted):
        fit(store, tmp_path / "run", callbacks=[Stop(4)])
    path = tmp_path / "run" / "checkpoint.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match="checkpoint"):
        fit(store, tmp_path / "run", resume=True)
    path.write_bytes((tmp_path / "run" / "model.safetensors").read_bytes())
    with pytest.raises(RunError, match="checkpoint"):
        fit(store, tmp_path / "run", resume=True)


def test_a_dataset_that_has_changed_is_not_resumed_on(store: Path, tmp_path: Path) -> None:
    changed = copied(store, tmp_path)
    with pytest.raises(RunInterrupted):
        fit(changed, tmp_path / "run", callbacks=[Stop(1)])
    path = changed / "db" / "people.parquet"
    pd.read_parquet(path).drop(columns="age").to_parquet(path)
    with pytest.raises(RunError, match="have changed"):
        fit(changed, tmp_path / "run", resume=True)


# What is kept, and what is said of it.


@pytest.mark.slow
def test_the_best_weights_are_kept_and_training_stops_in_time(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = iter([0.5, 0.7, 0.6, math.nan, 0.69, 0.9])
    seen = []

    def validate(trainer: Trainer, network: Network) -> tuple[None, dict[str, float]]:
        seen.append(state(network))
        return None, {"roc_auc": next(script)}

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "validate", validate)
        run = fit(store, tmp_path / "run", epochs=9, patience=3)
    assert (run.about["best_epoch"], run.about["epochs"]) == (1, 5)
    assert [line["best"] for line in told(run.folder)] == [True, True, False, False, False]
    kept = weights(run.folder)
    assert {k: kept[f"network.{k}"] for k in seen[1]} == seen[1]
    assert seen[1] != seen[4]
    assert run.history()["epoch"].tolist() == [0, 1, 2, 3, 4]
    for split in ("val", "test"):
        for regime in ("frozen", "rolling"):
            assert load_run(run.folder).evaluate(split, regime) == run.metrics[split][regime]


@pytest.mark.slow
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_the_scores_are_those_of_the_saved_weights(
    average: float, store: Path, tmp_path: Path
) -> None:
    regime = "frozen" if average else "rolling"
    run = fit(store, tmp_path / "run", epochs=4, patience=2, lr=0.1, average=average, regime=regime)
    best = told(run.folder)[run.about["best_epoch"]]
    assert best["best"]
    for name in ("roc_auc", "average_precision"):  # others depend on calibration and threshold
        assert best["val"][name] == pytest.approx(run.metrics["val"][regime][name])
    assert best["val"]["roc_auc"] == max(line["val"]["roc_auc"] for line in told(run.folder))
    for split in ("val", "test"):
        for regime in ("frozen", "rolling"):
            assert load_run(run.folder).evaluate(split, regime) == run.metrics[split][regime]


def test_what_cannot_be_scored_is_null_in_files_and_nan_in_python(
    store: Path, tmp_path: Path
) -> None:
    changed = copied(store, tmp_path)
    without_sql(changed, "buys")
    path = changed / "tasks" / "buys" / "test.parquet"
    pd.read_parquet(path).assign(buys=0).to_parquet(path)
    run = fit(changed, tmp_path / "run", epochs=1)
    assert math.isnan(run.metrics["test"]["rolling"]["roc_auc"])
    assert run.metrics["test"]["rolling"]["accuracy"] <= 1

    def refuse(word: str) -> None:
        raise AssertionError(word)

    again = fit(changed, tmp_path / "again", epochs=1, refit=True)
    assert math.isnan(again.metrics_before_refit["rolling"]["roc_auc"])
    assert "a test roc_auc of nan (frozen), nan (rolling)" in run_summary(again)
    for folder in (run.folder, again.folder):
        for file in ("metrics.json", "run.json"):
            json.loads((folder / file).read_text(), parse_constant=refuse)


def test_callbacks_are_called_in_order(store: Path, tmp_path: Path) -> None:
    events: list[tuple[str, str, int, int]] = []

    class Listen(Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def note(self, what: str, trainer: Trainer) -> None:
            events.append((what, self.name, trainer.at.epoch, trainer.at.step))

        def on_start(self, trainer: Trainer) -> None:
            self.note("start", trainer)

        def on_step(self, trainer: Trainer, loss: float) -> None:
            assert math.isfinite(loss)
            self.note("step", trainer)

        def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
            assert record.epoch == trainer.at.epoch - 1
            assert record.val["roc_auc"] <= 1
            self.note("epoch", trainer)

        def on_end(self, trainer: Trainer) -> None:
            self.note("end", trainer)

    fit(store, tmp_path / "run", callbacks=[Listen("a"), Listen("b")], steps_per_epoch=3)
    expected = [("start", 0, 0)]
    for epoch in (0, 1):
        expected += [("step", epoch, step) for step in (1, 2, 3)] + [("epoch", epoch + 1, 0)]
    expected.append(("end", 2, 0))
    assert events == [
        (what, name, epoch, step) for what, epoch, step in expected for name in ("a", "b")
    ]


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_with_a_remedy(store: Path, tmp_path: Path) -> None:
    class Spoil(Callback):
        def on_step(self, trainer: Trainer, loss: float) -> None:
            if trainer.at.steps == 4:
                trainer.network.head.last.weight.data.fill_(math.nan)

    with pytest.raises(RunError, match=r"loss is nan in epoch 1, step 1.*--set lr="):
        fit(store, tmp_path / "run", callbacks=[Spoil()])
    with pytest.raises(RunError, match="has not ended"):
        load_run(tmp_path / "run")
    fit(store, tmp_path / "whole")
    fit(store, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_a_program_without_a_console_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not is_watched()
    with TrainingProgress() as progress:
        assert not progress._live


@pytest.mark.parametrize("live", [True, False], ids=["terminal", "file"])
def test_progress_is_shown_and_put_away(
    live: bool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    if live:
        monkeypatch.setenv("FORCE_COLOR", "1")  # makes a terminal of anything
    progress = TrainingProgress()
    progress._live = live

    class Drawn(Callback):  # a bar is drawn ten times a second, which may be too late here
        def on_step(self, trainer: Trainer, loss: float) -> None:
            if progress._bar is not None:
                progress._bar.refresh()

    with progress, pytest.raises(RunInterrupted):
        fit(store, tmp_path / "run", callbacks=[progress, Drawn(), Stop(5)])
    said = capfd.readouterr().err
    assert ("seeds/s" in said.split("epoch   0")[0]) == live  # the bar
    assert ("\x1b[?25l" in said) == live
    assert said.rfind("\x1b[?25h") >= said.rfind("\x1b[?25l")  # the cursor is back
    with TrainingProgress() as progress:
        progress._live = live
        fit(store, tmp_path / "run", resume=True, callbacks=[progress], history="on")
    said = capfd.readouterr().err
    assert "epoch   1  loss " in said
    assert "epoch   0" not in said
    assert "keeping epoch " in said.splitlines()[-1]
    assert said.rfind("\x1b[?25h") >= said.rfind("\x1b[?25l")


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "epochs"), [(1, 1), (1, 3), (3, 2), (30, 2)])
def test_how_long_it_takes_is_said_in_the_first_epoch(
    steps: int, epochs: int, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
) -> None:  # fmt: skip
    """And once, with the time for validation in it."""
    now, counted = [0.0], [0]
    monkeypatch.setattr("relfrog.training.progress.time.monotonic", lambda: now[0])

    class Clock(Callback):
        def on_step(self, trainer: Trainer, loss: float) -> None:
            now[0] += 60.0
            counted[0] = trainer.steps_per_epoch

        def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
            now[0] += 600.0

    with TrainingProgress() as progress:
        progress._live = False
        run = fit(store, tmp_path / "run", callbacks=[Clock(), progress], epochs=epochs,
                  steps_per_epoch=steps, batch_size=8)  # fmt: skip
    said = capfd.readouterr().err
    before, _, after = said.partition("epoch   0")
    assert "an epoch takes about" in before
    assert "an epoch takes about" not in after
    taken = counted[0]
    assert 1 <= taken <= steps
    val = len(run.prepared.seeds("val")) / 8 / 3
    assert f"takes about {duration(60 * (taken + val))}," in before
    left = (epochs - 1) * (60 * taken + 600)
    assert f"at most {duration(left)} left" in after


def one_trainer(store: Path, folder: Path, **settings: Any) -> Trainer:
    """A trainer of its own, in an empty folder."""
    dataset = relfrog.open_dataset(store)
    task = load_task(dataset, "buys")
    folder.mkdir()
    return Trainer(
        OpenedTask(dataset, task).prepare(
            resolve(100, settings={"model": "frog", **QUICK, **settings})
        ),
        folder,
    )


def test_gradients_are_clipped(store: Path, tmp_path: Path) -> None:
    """With plain gradient descent a step is the learning rate times the clipped norm."""
    for clip, name in ((0.0, "free"), (1e-3, "clipped")):
        trainer = one_trainer(store, tmp_path / name, clip=clip, beta=0.0, gamma=0.0)
        trainer.optimizer = torch.optim.SGD(trainer.network.parameters(), lr=1.0)
        before = torch.cat([p.detach().flatten().clone() for p in trainer.network.parameters()])
        trainer.fit_model(next(iter(trainer.loader.epoch(0))))
        after = torch.cat([p.detach().flatten() for p in trainer.network.parameters()])
        moved = float((after - before).norm())
        assert moved > 0.01 if not clip else moved == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_the_learning_rate_rises_and_falls(schedule: str, store: Path, tmp_path: Path) -> None:
    trainer = one_trainer(store, tmp_path / "run", schedule=schedule, lr=0.01, epochs=40)
    total = 40 * trainer.steps_per_epoch
    assert total > 40
    for step in (0, 9, 19, total // 2, total - 1):
        trainer.at.steps = step
        trainer._set_learning_rate()
        expected = 0.01
        if schedule == "cosine":  # up over 20 steps, then down to nothing
            expected *= min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / total))
        for group in trainer.optimizer.param_groups:
            assert group["lr"] == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["recent", "sum", "mean", "max"])
@pytest.mark.parametrize("model", ["frog", "sage", "relgnn"])
def test_mixed_precision_learns_the_same(
    model: str, aggregation: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The types that a device with bfloat16 computes in, here on the CPU."""
    losses: list[list[float]] = []
    for precision in (contextlib.nullcontext, lambda: torch.autocast("cpu", torch.bfloat16)):
        torch.manual_seed(0)
        trainer = one_trainer(store, tmp_path / f"run{len(losses)}", model=model, layers=2,
                              aggregation=aggregation, completion="both")  # fmt: skip
        monkeypatch.setattr(trainer, "_precision", precision)
        losses.append([])
        torch.backends.mkldnn.set_flags(False)  # some CPUs die of oneDNN's bfloat16
        try:
            for _, plan in zip(range(6), trainer.loader.epoch(0), strict=False):
                losses[-1].append(trainer.train_step(plan))
        finally:
            torch.backends.mkldnn.set_flags(True)
        dtypes = {p.dtype for p in trainer.network.parameters()}
        assert dtypes == {torch.float32}
    assert losses[0] != losses[1]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.1)


def test_mixed_precision_without_a_device_for_it_is_said(store: Path, tmp_path: Path) -> None:
    with pytest.warns(RelFrogWarning, match="stays float32"):
        run = fit(store, tmp_path / "run", epochs=1, precision="mixed")
    plain = fit(store, tmp_path / "plain", epochs=1)
    assert weights(run.folder) == weights(plain.folder)


# The two phases.


def state(module: Any) -> dict[str, bytes]:
    return {k: v.numpy().tobytes() for k, v in module.state_dict().items()}


def test_each_phase_moves_its_own_weights_alone(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_model, fit_regulariser = Trainer.fit_model, Trainer.fit_regulariser
    moved: list[tuple[str, bool, bool]] = []

    def watched(method: Any) -> Any:
        def call(trainer: Trainer, *arguments: Any) -> Any:
            before = state(trainer.network), state(trainer.dependencies)
            found = method(trainer, *arguments)
            after = state(trainer.network), state(trainer.dependencies)
            moved.append((method.__name__, before[0] != after[0], before[1] != after[1]))
            return found

        return call

    monkeypatch.setattr(Trainer, "fit_model", watched(fit_model))
    monkeypatch.setattr(Trainer, "fit_regulariser", watched(fit_regulariser))
    for every in ("step", "epoch"):
        moved.clear()
        fit(store, tmp_path / every, fd_every=every, epochs=1)
        assert set(moved) == {("fit_model", True, False), ("fit_regulariser", False, True)}
        names = [name for name, *_ in moved]
        half = len(names) // 2
        assert names == (
            ["fit_model", "fit_regulariser"] * half if every == "step"
            else ["fit_model"] * half + ["fit_regulariser"] * half
        )  # fmt: skip


def test_gates_stand_still_in_the_phase_of_the_regulariser(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = Trainer.fit_regulariser_epoch
    gates: list[list[float]] = []

    def watched(trainer: Trainer) -> None:
        assert trainer.network.roles is not None
        gates.append(trainer.network.roles.average.tolist())
        phase(trainer)
        gates.append(trainer.network.roles.average.tolist())

    monkeypatch.setattr(Trainer, "fit_regulariser_epoch", watched)
    fit(store, tmp_path / "run", fd_every="epoch")
    assert len(gates) == 4
    assert gates[0] == gates[1] != gates[2] == gates[3]
    # Unless it is asked for, as the paper's authors have it.
    gates.clear()
    fit(store, tmp_path / "moving", fd_every="epoch", fd_training=True)
    assert gates[0] != gates[1] != gates[2] != gates[3]


def test_some_seeds_are_enough_for_the_losses(store: Path, tmp_path: Path) -> None:
    """With all seeds of a batch the losses are those of the batch; gates move once per step."""
    config = {"fd_final": True, "fd_pairs": 0, "dropout": 0.0, "epochs": 1, "steps_per_epoch": 1}
    config |= {"column_dropout": 0.0, "average": 0.0, "fd_negatives": 1, "alpha": 0.5}
    every = fit(store, tmp_path / "every", **config)
    same = fit(store, tmp_path / "same", fd_seeds=10_000, **config)
    one, two = (told(run.folder)[0] for run in (every, same))
    assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
    assert one["fd_emb"] == pytest.approx(two["fd_emb"], rel=1e-5)
    assert one["gates"] == pytest.approx(two["gates"], abs=1e-5)
    few = told(fit(store, tmp_path / "few", fd_seeds=4, **config).folder)[0]
    assert few["loss"] == pytest.approx(one["loss"], rel=1e-5)
    assert few["fd_emb"] == pytest.approx(one["fd_emb"], rel=0.5)


def test_no_regulariser_without_weight_or_for_the_plain_model(store: Path, tmp_path: Path) -> None:
    for name, options in {"none": {"beta": 0, "gamma": 0}, "sage": {"model": "sage"}}.items():
        run = fit(store, tmp_path / name, epochs=1, **options)
        assert not [key for key in weights(run.folder) if key.startswith("fd.")]
        assert all(line["fd_emb"] == line["fd_pair"] == 0 for line in told(run.folder))
    assert len(run.roles()) == 0
    assert run.prepared.routes == ()


def test_the_average_of_the_weights_is_what_is_saved(store: Path, tmp_path: Path) -> None:
    live = []

    class Last(Callback):
        def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
            live.append(state(trainer.network))

    run = fit(store, tmp_path / "run", epochs=1, average=0.9, callbacks=[Last()])
    plain = fit(store, tmp_path / "plain", epochs=1)
    kept = {k.removeprefix("network."): v for k, v in weights(run.folder).items()}
    assert kept["head.last.weight"] != live[0]["head.last.weight"]
    # Averaging changes nothing about how the weights themselves move.
    moved = {k.removeprefix("network."): v for k, v in weights(plain.folder).items()}
    assert moved["head.last.weight"] == live[0]["head.last.weight"]


# Folders.


@pytest.mark.slow
def test_a_run_is_not_replaced_unless_asked_for(
    store: Path, tmp_path: Path, run: relfrog.Run
) -> None:
    out = tmp_path / "deep" / "run"
    fit(store, out, seed=3, epochs=1)
    kept = weights(out)
    with pytest.raises(RunError, match=r"--overwrite.*--resume"):
        fit(store, out)
    for wrong in ({"task": "none"}, {"epochs": 0}, {"preset": "none"}, {"device": "abacus"}):
        with pytest.raises((TaskError, UsageError)):
            fit(store, out, overwrite=True, **wrong)  # type: ignore[arg-type]
        assert weights(out) == kept
    assert weights(fit(store, out, overwrite=True, layers=2).folder) == weights(run.folder)
    assert os.listdir(out.parent) == ["run"]


def test_what_is_no_run_is_never_replaced(store: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for name in ("folder", "file"):
        for options in ({}, {"overwrite": True}):
            with pytest.raises(RunError, match="no run folder"):
                fit(store, tmp_path / name, **options)
    assert (tmp_path / "folder" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    fit(store, tmp_path / "empty", epochs=1)


def test_nothing_is_left_behind_by_what_cannot_begin(store: Path, tmp_path: Path) -> None:
    for options in (
        {"task": "none"}, {"lrr": 1}, {"roles": "none.json"}, {"roles": {"a": 1.0}},
        {"preset": "none"}, {"size": "huge"}, {"text": "no such model"}, {"device": "abacus"},
    ):  # fmt: skip
        with pytest.raises(relfrog.RelFrogError):
            fit(store, tmp_path / "new" / "run", **options)  # type: ignore[arg-type]
    with pytest.raises(relfrog.errors.DatasetError):
        fit(tmp_path / "nowhere", tmp_path / "new" / "run")
    assert os.listdir(tmp_path) == []


def test_a_second_process_is_refused(store: Path, tmp_path: Path, run: relfrog.Run) -> None:
    refused = []

    class Intrude(Callback):
        def on_step(self, trainer: Trainer, loss: float) -> None:
            if trainer.at.steps == 2:
                for options in ({"resume": True}, {"overwrite": True}):
                    with pytest.raises(RunError, match="in use"):
                        relfrog.train(store, "buys", tmp_path / "run", **options)
                    refused.append(options)

    fit(store, tmp_path / "run", callbacks=[Intrude()], layers=2)
    assert len(refused) == 2
    assert weights(tmp_path / "run") == weights(run.folder)
    with locked(tmp_path / "run"):
        assert load_run(tmp_path / "run").evaluate() == run.evaluate()  # looking is allowed


@pytest.mark.slow
def test_resuming_is_refused_where_it_makes_no_sense(store: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nothing to resume"):
        fit(store, tmp_path / "none", resume=True)
    out = tmp_path / "run"
    with pytest.raises(RunInterrupted):
        fit(store, out, callbacks=[Stop(3)])
    with pytest.raises(UsageError, match="--resume or --overwrite"):
        fit(store, out, resume=True, overwrite=True)
    with pytest.raises(UsageError, match="task buys"):
        fit(store, out, "spends", resume=True)
    with pytest.raises(UsageError, match="task buys"):
        fit(copied(store, tmp_path), out, resume=True)
    with pytest.raises(UsageError, match=r"lr=0\.01, not 0\.5"):
        fit(store, out, resume=True, lr=0.5)
    with pytest.raises(UsageError, match="seed=0, not 4"):
        fit(store, out, resume=True, seed=4)
    with pytest.raises(UsageError, match=f"channels={QUICK['channels']}, not 128"):
        relfrog.train(store, "buys", out, resume=True, size="large")
    relfrog.train(store, "buys", out, resume=True, baselines=False)  # its own settings hold
    done = fit(store, out, resume=True)  # there is nothing left to do
    assert done.config.epochs == QUICK["epochs"]
    assert done.config.lr == QUICK["lr"]


@pytest.mark.slow
def test_settings_are_not_given_twice(store: Path, tmp_path: Path) -> None:
    for name, values in {
        "seed": (1, 2),
        "model": ("frog", "sage"),
        "roles": ("node", "edge"),
    }.items():
        with pytest.raises(UsageError, match=f"{name} is given twice"):
            relfrog.train(
                store, "buys", tmp_path / "run", settings={name: values[0]}, **{name: values[1]}
            )  # type: ignore[arg-type]
    path = tmp_path / "mine.yaml"
    path.write_text("seed: 5\nmodel: sage\nroles: node\nepochs: 1\n")
    run = relfrog.train(
        store,
        "buys",
        tmp_path / "run",
        preset=str(path),
        settings={**QUICK, "epochs": 1},
        baselines=False,
    )
    assert (run.config.seed, run.config.model, run.config.roles) == (5, "sage", "node")
    with pytest.raises(UsageError, match="--roles FILE"):
        fit(store, tmp_path / "fixed", **{"roles": None, "preset": _yaml(tmp_path, "roles: fixed")})


def _yaml(folder: Path, text: str) -> str:
    path = folder / "some.yaml"
    path.write_text(text)
    return str(path)


# Roles.


@pytest.mark.slow
def test_roles_that_are_given_do_not_move(store: Path, tmp_path: Path, run: relfrog.Run) -> None:
    fit_once = functools.partial(fit, store, epochs=1)
    edge = fit_once(tmp_path / "edge", roles="edge")
    assert edge.roles()["gate"].tolist() == [1.0] * 4
    node = fit_once(tmp_path / "node", roles="node")
    assert len(node.roles()) == 0
    drawn = [fit_once(tmp_path / f"r{s}", roles="random", seed=s) for s in range(2)]
    gates = [tuple(r.roles()["gate"]) for r in drawn]
    assert {g for some in gates for g in some} == {0.0, 1.0}
    assert len(set(gates)) > 1
    learned = run.roles()
    ways: dict[str, Any] = {
        "file": run.folder / "roles.json",
        "mapping": dict(zip(learned["route"], learned["gate"])),
    }
    for name, roles in ways.items():
        frozen = fit_once(tmp_path / name, roles=roles)
        assert frozen.config.roles == "fixed"
        assert frozen.roles()["gate"].tolist() == learned["gate"].tolist()
        assert load_run(frozen.folder).evaluate() == frozen.metrics["test"]["rolling"]
        assert weights(frozen.folder) == weights(tmp_path / "file")
    (tmp_path / "by-hand.json").write_text(json.dumps(dict.fromkeys(learned["route"], 0.25)))
    by_hand = fit_once(tmp_path / "by-hand", roles=tmp_path / "by-hand.json")
    assert by_hand.roles()["gate"].tolist() == [0.25] * 4
    assert weights(by_hand.folder) != weights(tmp_path / "file")


def test_roles_fit_another_task_of_the_same_database(
    store: Path, tmp_path: Path, run: relfrog.Run
) -> None:
    other = fit(store, tmp_path / "other", "spends", roles=run.folder, epochs=1)
    assert other.roles()["gate"].tolist() == run.roles()["gate"].tolist()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "4 of 4 routes have no gate"),
        ("[]", "4 of 4 routes have no gate"),
        ('[{"route": "a"}]', "gates by route"),
        ('{"a": "much"}', "gates by route"),
        ("5", "gates by route"),
        (("", "damaged")),
    ],
)
def test_wrong_gates_are_refused(content: str, words: str, store: Path, tmp_path: Path) -> None:
    (tmp_path / "gates.json").write_text(content)
    with pytest.raises((UsageError, RunError), match=words):
        fit(store, tmp_path / "run", roles=tmp_path / "gates.json")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("gate", [-0.1, 1.1, math.nan])
def test_gates_are_shares(gate: float, store: Path, tmp_path: Path, run: relfrog.Run) -> None:
    with pytest.raises(UsageError, match="gates must be from 0 to 1"):
        fit(store, tmp_path / "run", roles=dict.fromkeys(run.roles()["route"], gate))


# Label history, denser and staler seeds.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["buys", "spends"])
def test_history_is_chosen_by_validation(name: str, store: Path, tmp_path: Path) -> None:
    runs = {h: fit(store, tmp_path / h, name, history=h, loss="l1") for h in ("on", "off")}
    metric, higher = runs["on"].model.kind.metric, runs["on"].model.kind.higher
    scores = {h: run.metrics["val"]["rolling"][metric] for h, run in runs.items()}
    assert scores["on"] != scores["off"]
    best = (max if higher else min)(scores, key=lambda h: scores[h])
    with pytest.raises(RunInterrupted):
        fit(store, tmp_path / "auto", name, history="auto", loss="l1", callbacks=[Stop(8)])
    auto = fit(store, tmp_path / "auto", name, history="auto", loss="l1", resume=True)
    assert auto.config.history == best
    assert weights(auto.folder) == weights(tmp_path / best)
    assert auto.metrics == runs[best].metrics
    assert auto.about["candidates"] == {
        "history=on": scores["on"], "history=off": scores["off"]
    }  # fmt: skip
    assert not list(auto.folder.glob("history-*"))
    assert load_run(auto.folder).evaluate() == auto.metrics["test"]["rolling"]
    assert fit(store, auto.folder, name, history="auto", resume=True).config.history == best
    without = Columns.load(tmp_path / "off").tables
    assert set(Columns.load(tmp_path / "on").tables) == {*without, "labels of the task"}


@pytest.mark.slow
def test_density_adds_seeds_between_those_of_the_task(store: Path, tmp_path: Path) -> None:
    dataset = relfrog.open_dataset(store)
    task = load_task(dataset, "spends")
    db = dataset.get_db(upto_test_timestamp=False)
    opened = OpenedTask(dataset, task)
    plain, dense = (opened.training_seeds(n) for n in (1, 4))
    assert plain.labels is not None
    assert dense.labels is not None
    labels = dict(zip(zip(dense.rows, dense.times), dense.labels))
    for row, time, label in zip(plain.rows, plain.times, plain.labels):
        assert labels[row, time] == pytest.approx(label)
    assert len(dense) == len(labels) > 3 * len(plain)
    assert dense.times.max() == VAL - HORIZON  # no label looks beyond the validation time
    assert dense.times.min() >= plain.times.min()
    assert set(np.diff(np.unique(dense.times))) == {(HORIZON / 4).to_timedelta64()}
    orders = db.table_dict["orders"].df
    for (row, time), label in list(labels.items())[::17]:
        inside = (orders["ordered_at"] > time) & (orders["ordered_at"] <= time + HORIZON)
        spent = orders["amount"][inside & (orders["person"] == row)].sum()
        assert label == pytest.approx(1000 * spent)
    ready = [OpenedTask(dataset, task).prepare(Config(**QUICK, density=n)) for n in (1, 4, 4)]
    sizes = [len(part.train_seeds or ()) for part in ready]
    assert sizes == [len(plain), len(dense), len(dense)]
    for one, other in zip(
        ready[1].train_seeds.__dict__.values(), ready[2].train_seeds.__dict__.values()
    ):
        assert np.array_equal(one, other)  # in the same order every time
    runs = {n: fit(store, tmp_path / str(n), "spends", density=n, epochs=1) for n in (1, 4)}
    assert weights(runs[1].folder) != weights(runs[4].folder)


def test_staleness_stops_the_database_before_training_seeds(store: Path, tmp_path: Path) -> None:
    dataset = relfrog.open_dataset(store)
    ready = OpenedTask(dataset, load_task(dataset, "buys")).prepare(Config(**QUICK))
    assert ready.train_seeds is not None
    window = HORIZON.total_seconds()
    loader = ready.loader(ready.train_seeds, staleness=0.5 * window)
    lags = np.concatenate([plan.batch.group_lags.numpy() for plan in loader.epoch(0)])
    assert (lags >= 0).all()
    assert (lags <= 0.5 * window).all()
    assert lags.max() > 0.1 * window
    assert all((plan.batch.group_lags == 0).all() for plan in loader)  # not in evaluation
    fit(store, tmp_path / "fresh", epochs=1)
    fit(store, tmp_path / "stale", epochs=1, staleness=1.5)
    assert weights(tmp_path / "fresh") != weights(tmp_path / "stale")


# Every type of task.


@pytest.mark.slow
def test_predictions_of_a_regression_are_in_the_unit_of_its_labels(
    store: Path, tmp_path: Path
) -> None:
    euros = copied(store, tmp_path)
    without_sql(euros, "spends")
    for split in ("train", "val", "test"):
        path = euros / "tasks" / "spends" / f"{split}.parquet"
        frame = pd.read_parquet(path)
        frame.assign(cents=frame["cents"] / 1000).to_parquet(path)
    runs = [
        fit(where, tmp_path / name, "spends", history="off", epochs=4)
        for where, name in ((store, "large"), (euros, "small"))
    ]
    large, small = (run.predict()["prediction"].to_numpy() for run in runs)
    assert large == pytest.approx(1000 * small, rel=1e-3)
    assert large.std() > 100
    seeds = runs[0].prepared.seeds("train")
    assert seeds.labels is not None
    low, high = np.percentile(seeds.labels, [2, 98])
    assert (large >= low).all()
    assert (large <= high).all()
    one, other = (run.metrics["test"]["rolling"] for run in runs)
    assert one["mae"] == pytest.approx(1000 * other["mae"], rel=1e-3)
    assert one["nmae"] == pytest.approx(one["mae"] / seeds.labels.std(ddof=1))


@pytest.mark.parametrize("name", list(TASKS))
def test_every_type_of_task_is_trained_scored_and_predicted(
    name: str, store: Path, tmp_path: Path
) -> None:
    run = fit(store, tmp_path / "run", name, epochs=4)
    loss = [line["loss"] for line in told(run.folder)]
    assert loss[-1] < loss[0]
    task = run.prepared.task
    labels = task.get_table("test", mask_input_cols=False).df
    keys = source_keys(store, "people")
    assert keys is not None
    asked = pd.DataFrame(
        {"code": keys["code"].to_numpy()[labels["code"]], "time": labels["timestamp"]}
    )
    found = run.predict(entities=asked)
    assert found["code"].tolist() == asked["code"].tolist()
    assert found["time"].tolist() == asked["time"].tolist()
    scores = run.metrics["test"]["rolling"]
    label = labels[task.target_col]
    if name in ("wants", "counts"):
        assert set(found["prediction"]) <= set(run.about["labels"]["classes"])
        assert scores["accuracy"] == np.mean(found["prediction"].to_numpy() == label.to_numpy())
        each = found[[f"probability_{c}" for c in run.about["labels"]["classes"]]]
        assert each.sum(axis=1).to_numpy() == pytest.approx(np.ones(len(each)), abs=1e-5)
    elif name == "sorts":
        from sklearn.metrics import roc_auc_score

        each = found[["probability_0", "probability_1", "probability_2"]]
        assert ((each >= 0) & (each <= 1)).to_numpy().all()
        auc = roc_auc_score(np.stack(label.tolist()), each.to_numpy(), average="macro")
        assert scores["roc_auc_macro"] == pytest.approx(auc)
    elif name == "buys":
        hits = found["decision"].to_numpy() == label.to_numpy()
        (threshold,) = run.postprocessing.thresholds
        assert found["decision"].tolist() == (found["prediction"] >= threshold).tolist()
        assert scores["accuracy"] == pytest.approx(hits.mean())
        assert found["prediction"].between(0, 1).all()
    else:
        error = (found["prediction"].to_numpy() - label.to_numpy()).__abs__().mean()
        assert scores["mae"] == pytest.approx(error)


def test_a_class_that_training_never_saw_is_never_right(store: Path, tmp_path: Path) -> None:
    changed = copied(store, tmp_path)
    without_sql(changed, "wants")
    path = changed / "tasks" / "wants" / "test.parquet"
    pd.read_parquet(path).assign(title="a new thing").to_parquet(path)
    run = fit(changed, tmp_path / "run", "wants", epochs=1)
    assert run.metrics["test"]["rolling"]["accuracy"] == 0


def test_what_cannot_be_trained_says_so(store: Path, tmp_path: Path) -> None:
    changed = copied(store, tmp_path)
    with pytest.raises(TaskError, match="no task 'buy'"):
        fit(changed, tmp_path / "run", "buy")
    path = changed / "tasks" / "buys" / "train.parquet"
    pd.read_parquet(path).iloc[:0].to_parquet(path)
    with pytest.raises(TaskError, match="no training labels"):
        fit(changed, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_loss_is_chosen_by_validation(store: Path, tmp_path: Path) -> None:
    losses = ("squared", "poisson", "tweedie")
    runs = {loss: fit(store, tmp_path / loss, "spends", loss=loss) for loss in losses}
    scores = {loss: run.metrics["val"]["rolling"]["rmse"] for loss, run in runs.items()}
    assert len(set(scores.values())) == 3
    best = min(scores, key=lambda loss: scores[loss])
    with pytest.raises(RunInterrupted):
        fit(store, tmp_path / "mean", "spends", loss="mean", callbacks=[Stop(8)])
    chosen = fit(store, tmp_path / "mean", "spends", loss="mean", resume=True)
    assert chosen.about["candidates"] == {f"loss={loss}": scores[loss] for loss in losses}
    assert chosen.config.loss == chosen.about["labels"]["loss"] == best
    assert weights(chosen.folder) == weights(tmp_path / best)
    assert chosen.metrics == runs[best].metrics
    assert not list((tmp_path / "mean").glob("candidate-*"))
    assert load_run(tmp_path / "mean").evaluate() == chosen.evaluate()
    # Amounts are means by default in what RelFrog has imported.
    assert fit(store, tmp_path / "auto", "spends", epochs=1).config.loss in losses


def test_without_time_one_loss_is_trained_and_the_others_are_named(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, said = NetworkModel.fit, []

    def over_at_once(self: Any, folder: Path, *given: Any, **options: Any) -> None:
        real(self, folder, Budget(0.0), *given[1:], **options)

    class Listen(Callback):
        def on_message(self, text: str) -> None:
            said.append(text)

    monkeypatch.setattr(NetworkModel, "fit", over_at_once)
    run = fit(store, tmp_path / "run", "spends", loss="mean", callbacks=[Listen()])
    assert [text for text in said if "left out" in text] == [
        "loss=tweedie left out: there is no time for it",
        "loss=squared left out: there is no time for it",
    ]
    assert run.about["labels"]["loss"] == "poisson"
    assert "candidates" not in run.about


@pytest.mark.slow
def test_a_budget_ends_training_within_an_epoch(store: Path, tmp_path: Path) -> None:
    trainer = one_trainer(store, tmp_path / "run", batch_size=4)
    seen = []

    class Watch(Callback):
        def on_step(self, trainer: Trainer, loss: float) -> None:
            seen.append(trainer.at.steps)
            if len(seen) == 3:
                object.__setattr__(trainer.budget, "until", 0.0)

    trainer.callbacks, trainer.budget = (Watch(),), Budget.of_minutes(60)
    assert trainer.steps_per_epoch > 4
    trainer.fit()
    assert seen == [1, 2, 3]
    assert trainer.at.epoch == 1  # validated, saved, and no further
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_validation_is_predicted_once_and_as_the_loaded_run_predicts_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not even predictions of the same network by another test are known.
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "cache"))
    asked = []
    predict = NetworkModel.predict

    def noted(model: NetworkModel, seeds: Any, cutoff: Any, request: Any = None) -> Any:
        asked.append((model.prepared.opened.split_of(seeds), cutoff))
        return predict(model, seeds, cutoff, request)

    monkeypatch.setattr(NetworkModel, "predict", noted)
    for refit, regime in ((False, "frozen"), (True, "rolling")):
        asked.clear()
        run = fit(store, tmp_path / regime, refit=refit, regime=regime)
        cutoffs = {"frozen": VAL, "rolling": None}
        selects = cutoffs.pop(regime)
        assert ("val", selects) not in asked  # training has done that
        assert ("val", *cutoffs.values()) in asked
        model = load_run(run.folder).model.selected
        seeds = model.prepared.seeds("val")
        again = predict(model, seeds, selects)
        np.testing.assert_array_equal(model.predict_once(seeds, selects), again)
        assert run.metrics["val"][regime] == model.score("val", regime)


@pytest.mark.slow
def test_epochs_are_chosen_on_a_sample_and_runs_scored_on_all(store: Path, tmp_path: Path) -> None:
    run = fit(store, tmp_path / "run", val_seeds=20)
    seeds = run.prepared.seeds("val")
    assert len(seeds) > 20
    trainer = Trainer(run.prepared.opened.prepare(run.config), tmp_path, labels=run.about["labels"])
    assert len(trainer.val_seeds) == 20
    places = set(zip(seeds.rows, seeds.times, strict=True))
    assert set(zip(trainer.val_seeds.rows, trainer.val_seeds.times, strict=True)) < places
    predicted, scores = trainer.validate(run.network)
    assert len(predicted) == 20
    best = told(run.folder)[run.about["best_epoch"]]
    assert scores["roc_auc"] == best["val"]["roc_auc"]
    assert run.metrics["val"][run.config.regime] == run.model.score("val", run.config.regime)
    assert run.metrics["val"][run.config.regime] != scores
