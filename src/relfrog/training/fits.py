"""From a run folder that is begun to one that is complete: a network, a baseline, or several."""

from __future__ import annotations

import errno
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from relfrog.config import Config
from relfrog.datasets.metrics import REGIMES, better
from relfrog.errors import RunError
from relfrog.features.novelty import FILE as UNSEEN
from relfrog.kinds import NETWORKS
from relfrog.models.auto import deadline, fit_members, take_over
from relfrog.models.prepared import Prepared, prepare, seeds_of, with_validation
from relfrog.models.registry import baseline_class
from relfrog.support.files import clear_partials, locked, plain, write_json, write_text, written
from relfrog.support.threads import computing
from relfrog.training import checkpoint as checkpoints
from relfrog.training.beside import FILE, score_baselines
from relfrog.training.run import Run, chosen_device, load_run
from relfrog.training.run_folder import CHOSEN, resume_command
from relfrog.training.trainer import Callback, Trainer

__all__ = ["RunInterrupted", "learn", "tidy"]


#: Where a model that was chosen learns once more.
REFIT = "refit"


class RunInterrupted(KeyboardInterrupt):
    """Training was interrupted; its message says how to go on."""


def learn(
    folder: Path,
    about: dict[str, Any],
    config: Config,
    prepared: Prepared,
    device: str | None,
    callbacks: Sequence[Callback],
    *,
    baselines: bool,
    resume: bool,
    train: Callable[..., Run],
    members: Mapping[str, str | Path],
) -> Run:
    """Train whatever model it is.

    Args:
        folder: of the run, with its settings in it.
        about: of the run, as in `run.json`.
        config: the settings.
        prepared: the task and the database.
        device: where to compute.
        callbacks: told what happens.
        baselines: whether to score quick baselines beside the model.
        resume: whether to go on from checkpoints.
        train: `relfrog.train`, for the members of `auto`.
        members: of `auto`, finished runs by model.
    """
    with computing(config.threads):
        if config.model == "auto":
            return _fit_auto(folder, about, prepared, device, callbacks, train, members)
        if config.model not in NETWORKS:
            run = _fit_baseline(folder, about, prepared, callbacks)
            if baselines:
                _score_beside(run, prepared, callbacks)
            return run
        run = _fit(folder, about, config, prepared, device, callbacks, resume)
        if baselines:
            _score_beside(run, prepared, callbacks)
        return run


def _fit(
    folder: Path,
    about: dict[str, Any],
    config: Config,
    prepared: Prepared,
    device: str | None,
    callbacks: Sequence[Callback],
    resume: bool,
) -> Run:
    import torch

    started = time.monotonic()
    chosen = chosen_device(device)
    with locked(folder):
        clear_partials(folder)
        try:
            candidates = _candidates(config, prepared)
            trainers = []

            def fit(part: Path, candidate: Prepared, **more: Any) -> Trainer:
                part.mkdir(exist_ok=True)
                trainer = Trainer(
                    candidate, part, roles=about["gates"], device=torch.device(chosen),
                    callbacks=callbacks, **more,
                )  # fmt: skip
                if resume:
                    trainer.load_checkpoint()
                trainer.fit()
                return trainer

            for name, candidate in candidates:
                trainers.append((name, fit(folder / name, candidate)))
            name, trainer = _best(trainers)
            if len(trainers) > 1:
                about["history_by_validation"] = {n: t.at.best for n, t in trainers}
            final = trainer
            if config.refit:
                assert trainer.prepared.train_seeds is not None
                seeds = with_validation(trainer.prepared, trainer.prepared.train_seeds)
                _tell(callbacks, "once more, from training and validation labels ...")
                final = fit(
                    folder / REFIT, replace(trainer.prepared, train_seeds=seeds),
                    about=trainer.about, last=trainer.at.best_epoch + 1,
                )  # fmt: skip
                (folder / CHOSEN).mkdir(exist_ok=True)
                test = seeds_of(prepared.task, "test")
                about["refit"] = {
                    "labels": len(seeds), "epochs": final.at.epoch,
                    "before": {regime: trainer.score(test, "test", regime) for regime in REGIMES},
                }  # fmt: skip
            # Copied, not moved: whoever is killed here finds all parts whole.
            for source, to in (
                (folder / name / "history.jsonl", folder),
                (folder / name / "model.safetensors", folder / CHOSEN if config.refit else folder),
                (final.folder / "model.safetensors", folder),
            ):
                if source.parent != to:
                    with written(to / source.name) as copy:
                        copy.write(source.read_bytes())
            _finish(folder, about, trainer, final, started)
            tidy(folder)
        except KeyboardInterrupt:
            again = resume_command(folder)
            raise RunInterrupted(f"Interrupted. Go on with: {again}") from None
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise RunError(
                f"no room left to write into {folder} ({error.strerror}). Nothing is lost: make "
                f"room, then go on with: {resume_command(folder)}"
            ) from None
    return load_run(folder, device=chosen)


def _fit_baseline(
    folder: Path, about: dict[str, Any], prepared: Prepared, callbacks: Sequence[Callback]
) -> Run:
    """Fit what is no network, and write the same folder."""
    started = time.monotonic()

    with locked(folder):
        assert prepared.train_seeds is not None
        labels = prepared.describe_labels(prepared.train_seeds)
        baseline = baseline_class(prepared.config.model, about["task_type"])(prepared, labels)
        baseline.until = deadline(callbacks)
        try:
            baseline.fit(lambda text: _tell(callbacks, text))
            baseline.save(folder)
            if baseline.selected is not baseline:
                (folder / CHOSEN).mkdir(exist_ok=True)
                baseline.selected.save(folder / CHOSEN)
                before = {regime: baseline.selected.score("test", regime) for regime in REGIMES}
                about["refit"] = {"before": before}
            prepared.columns.save(folder)
            write_json(folder / "roles.json", [])
            lines = [json.dumps(plain(line), default=str) + "\n" for line in baseline.trials]
            write_text(folder / "history.jsonl", "".join(lines))
            metrics = {
                split: {regime: baseline.score(split, regime) for regime in REGIMES}
                for split in ("val", "test")
            }
        except KeyboardInterrupt:
            again = resume_command(folder)
            raise RunInterrupted(f"Interrupted. Go on with: {again}") from None
        _complete(folder, about | {"labels": labels}, metrics, started)
    return load_run(folder)


def _fit_auto(
    folder: Path,
    about: dict[str, Any],
    prepared: Prepared,
    device: str | None,
    callbacks: Sequence[Callback],
    train: Callable[..., Run],
    members: Mapping[str, str | Path],
) -> Run:
    """Fit several models, choose among them, and write the same folder."""
    started = time.monotonic()
    chosen = chosen_device(device)
    with locked(folder):
        assert prepared.train_seeds is not None
        about |= {"labels": prepared.describe_labels(prepared.train_seeds)}
        try:
            for name, source in members.items():
                started -= take_over(Path(source), folder, name, about, prepared.config)
            fit_members(folder, about, prepared, train, device, callbacks)
            prepared.columns.save(folder)
            write_json(folder / "roles.json", [])
            write_text(folder / "history.jsonl", "")
            run = Run(folder, about, prepared.config, chosen)
            metrics = {
                split: {regime: run.evaluate(split, regime) for regime in REGIMES}
                for split in ("val", "test")
            }
            if prepared.config.refit:
                before = {regime: run.selected.evaluate("test", regime) for regime in REGIMES}
                about["refit"] = {"before": before}
        except KeyboardInterrupt:
            again = resume_command(folder)
            raise RunInterrupted(f"Interrupted. Go on with: {again}") from None
        _complete(folder, about, metrics, started)
    return load_run(folder, device=chosen)


def _complete(
    folder: Path, about: dict[str, Any], metrics: dict[str, Any], started: float, **more: Any
) -> None:
    """Write the scores, and then that the run is complete; a network says more of itself."""
    write_json(folder / "metrics.json", metrics)
    said = {"weights": 0, "best_epoch": 0, "epochs": 0} | more
    took = round(time.monotonic() - started, 1)
    write_json(folder / "run.json", {
        **about, "status": "complete", **said, "seconds": took,
        "peak_memory_bytes": _peak_memory(),
    })  # fmt: skip


def _score_beside(run: Run, prepared: Prepared, callbacks: Sequence[Callback]) -> None:
    """Score quick baselines; whatever happens to them, the run is complete."""
    try:
        _tell(callbacks, "baselines beside it ...")
        found = score_baselines(
            prepared.dataset, prepared.task, run.config, lambda text: _tell(callbacks, text)
        )
        write_json(run.folder / FILE, found)
    except KeyboardInterrupt:
        _tell(callbacks, "baselines left out: interrupted. The run itself is complete.")
    except Exception as error:
        _tell(callbacks, f"baselines left out: {' '.join(str(error).split()) or type(error)}")


def _tell(callbacks: Sequence[Callback], text: str) -> None:
    for callback in callbacks:
        callback.on_message(text)


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows has none
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def _candidates(config: Config, prepared: Prepared) -> list[tuple[str, Prepared]]:
    """What to train: one model, or one with and one without label history, in which folders."""
    if config.history != "auto":
        # What is learned once more must not be mixed up with what was chosen.
        return [(CHOSEN if config.refit else "", prepared)]
    without = prepare(prepared.dataset, prepared.task, replace(config, history="off"))
    return [("history-on", prepared), ("history-off", without)]


def _best(trainers: list[tuple[str, Trainer]]) -> tuple[str, Trainer]:
    best = trainers[0]
    for other in trainers[1:]:
        score = other[1].at.best
        if score is not None and better(score, best[1].at.best, other[1].higher):
            best = other
    return best


def _finish(
    folder: Path, about: dict[str, Any], chosen: Trainer, trainer: Trainer, started: float
) -> None:
    """Score the saved weights, write what is left to write, and call the run complete.

    Args:
        folder: of the run.
        about: of the run, as in `run.json`.
        chosen: what validation has chosen, and is scored on validation.
        trainer: what is used; the same, unless that was learned once more.
        started: when all this began.
    """
    prepared = trainer.prepared
    prepared.columns.save(folder)
    write_json(folder / UNSEEN, prepared.unseen)
    write_text(folder / "config.yaml", trainer.config.to_yaml())
    gates = trainer.network.roles.average.tolist() if trainer.network.roles else []
    write_json(
        folder / "roles.json",
        [
            {
                "route": str(route), "paradigm": route.paradigm.name,
                **dict(zip("uvw", route.tables, strict=True)), "gate": gate,
            }
            for route, gate in zip(prepared.routes if gates else (), gates, strict=True)
        ],
    )  # fmt: skip
    metrics = {
        split: {
            regime: one.score(seeds_of(prepared.task, split), split, regime) for regime in REGIMES
        }
        for split, one in (("val", chosen), ("test", trainer))
    }
    _complete(
        folder, about | {"labels": trainer.about}, metrics, started,
        weights=sum(p.numel() for p in trainer.network.parameters()),
        best_epoch=chosen.at.best_epoch, epochs=chosen.at.epoch,
    )  # fmt: skip


def tidy(folder: Path) -> None:
    """Remove what only an interrupted run needs."""
    clear_partials(folder)
    checkpoints.clear(folder)
    for name in ("history-on", "history-off", REFIT):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
    if (folder / CHOSEN).is_dir():
        checkpoints.clear(folder / CHOSEN)
        (folder / CHOSEN / "history.jsonl").unlink(missing_ok=True)
