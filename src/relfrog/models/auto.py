"""`auto`: trains the trivial models, LightGBM and FROG, and takes the best or a blend of them.

Each member is a run folder of its own under `members`; `blend.json` says which of them answer, and
what all of them score on validation.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.config import Config
from relfrog.datasets.metrics import better, compute_metrics
from relfrog.errors import RelFrogError, RunError
from relfrog.kinds import BASELINES, LEARNING, NETWORKS
from relfrog.models.prepared import Prepared, seeds_of
from relfrog.nn.heads import HEADS
from relfrog.support.files import appearing, write_json
from relfrog.training.run import Run
from relfrog.training.run_folder import BLEND, MEMBERS, is_run, read_run
from relfrog.training.trainer import Callback, EpochRecord, Trainer

__all__ = ["Blend", "TimeBudget", "choose", "deadline", "fit_members", "member_names", "take_over"]


class TimeBudget(Callback):
    """Ends training with the epoch in which the time is over."""

    def __init__(self, until: float) -> None:
        self.until = until

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Have no patience left."""
        if time.monotonic() > self.until:
            trainer.at.waited = max(trainer.at.waited, trainer.config.patience)


def deadline(callbacks: Sequence[Callback]) -> float:
    """When the time of a member is over, on the clock of `time.monotonic`."""
    return min((one.until for one in callbacks if isinstance(one, TimeBudget)), default=math.inf)


def member_names(kind: str) -> list[str]:
    """What `auto` trains for a type of task, the quickest first."""
    names = [name for name, kinds in BASELINES.items() if kind in kinds]
    return [*sorted(names, key=lambda name: name == "lightgbm"), "frog"]


def _settings(name: str, config: Config) -> dict[str, Any]:
    """What a member is trained with."""
    settings = asdict(config) | {"model": name}
    if name != "frog":
        settings["roles"] = "learned"
    if name not in NETWORKS:
        settings["history"] = "on"
    if name not in LEARNING:
        settings["refit"] = False
    return settings


def take_over(
    source: Path, folder: Path, name: str, about: dict[str, Any], config: Config
) -> float:
    """Copy a finished run to be a member, if it is the one that would be trained.

    Args:
        source: the run, if it is there.
        folder: of `auto`.
        name: the member's model.
        about: of `auto`, as in `run.json`.
        config: of `auto`.

    Returns:
        The seconds that its training took.
    """
    place = folder / MEMBERS / name
    try:
        theirs, settings = read_run(source)
    except RelFrogError:
        return 0.0
    gates = about.get("gates") if name in NETWORKS else None
    mine = {**about, "status": "complete", "gates": gates}
    same = all(theirs.get(part) == mine[part] for part in ("dataset", "task", "status", "gates"))
    if not same or is_run(place) or asdict(settings) != _settings(name, config):
        return 0.0
    with appearing(place, True, lambda _: "") as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
    return float(theirs["seconds"])


def fit_members(
    folder: Path,
    about: dict[str, Any],
    prepared: Prepared,
    train: Callable[..., Run],
    device: str | None,
    callbacks: Sequence[Callback],
) -> None:
    """Train all members for which there is time, choose by validation, and write the choice.

    Members that are there already are taken as they are, or go on where they were interrupted.

    Args:
        folder: of the run.
        about: of the run, as in `run.json`.
        prepared: the task and the settings.
        train: `relfrog.train`.
        device: where to compute.
        callbacks: told what happens.

    Raises:
        RunError: No member could be trained.
    """
    config = prepared.config
    kind = about["task_type"]
    until = time.monotonic() + 60 * config.minutes

    def tell(text: str) -> None:
        for callback in callbacks:
            callback.on_message(text)

    members: dict[str, Run] = {}
    skipped: dict[str, str] = {}
    for name in member_names(kind):
        place = folder / MEMBERS / name
        begun = is_run(place)
        if members and not begun and time.monotonic() > until:
            skipped[name] = f"the {config.minutes:g} minutes were over"
            tell(f"auto: {name} left out: {skipped[name]}")
            continue
        gates = about.get("gates") if name in NETWORKS else None
        settings = _settings(name, config)
        tell(f"auto: {name}")
        # Of what is left a search may use half: the network, which comes last, needs time too.
        now = time.monotonic()
        end = until if name in NETWORKS else min(until, (now + until) / 2)
        try:
            members[name] = train(
                about["dataset"], about["task"], place, settings=settings, roles=gates,
                resume=begun, device=device, baselines=False,
                callbacks=[*callbacks, TimeBudget(end)],
            )  # fmt: skip
        except RelFrogError as error:
            # One that does not fit the data is no reason to lose the others.
            skipped[name] = str(error)
            tell(f"auto: {name} left out: {error}")
    if not members:
        raise RunError(f"auto: no model could be trained. {next(iter(skipped.values()), '')}")
    _choose(folder, members, skipped, prepared, kind, tell)


def _choose(
    folder: Path,
    members: dict[str, Run],
    skipped: dict[str, str],
    prepared: Prepared,
    kind: str,
    tell: Callable[[str], None],
) -> None:
    config = prepared.config
    val = seeds_of(prepared.task, "val")
    cutoff = prepared.cutoff("val", config.regime)
    first = next(iter(members.values()))
    blend = choose(
        kind,
        first.truth(val),
        {name: run.selected.predict_seeds(val, cutoff) for name, run in members.items()},
        first.about["labels"].get("std"),
        config.seed,
    )
    words = ", ".join(f"{name} {weight:.2f}" for name, weight in blend.weights.items())
    tell(f"auto: {words}")
    write_json(
        folder / BLEND,
        asdict(blend)
        | {
            "regime": config.regime,
            "members": {
                name: {"val": run.metrics["val"], "seconds": run.about["seconds"]}
                for name, run in members.items()
            },
            "skipped": skipped,
        },
    )


#: Draws of validation seeds, seeds in each, and the share of draws that a model must lose to be
#: clearly worse.
DRAWS, DRAWN, CLEARLY = 100, 20_000, 0.9


@dataclass(frozen=True)
class Blend:
    """Weights of models, which sum to 1, and why.

    Attributes:
        weights: of the models that take part.
        score: the validation metric of the blend.
        best: the best single model.
        sure: the share of draws of validation seeds in which the average beats it; 0 where there
            is none.
    """

    weights: dict[str, float]
    score: float
    best: str
    sure: float


def choose(
    kind: str,
    truth: NDArray[Any],
    predicted: dict[str, NDArray[Any]],
    label_std: float | None = None,
    seed: int = 0,
) -> Blend:
    """The best model, or the average of it and the second best.

    They are averaged evenly unless the second, or the average, is clearly worse: loses to the best
    in nearly all draws of the validation seeds. Weights that are fitted to validation labels, or a
    single winner of a close race, hold less of what they promise; and that the average scores a
    little worse is no reason to leave it, since the best model's epoch or settings were chosen on
    these very labels, which flatters it.

    Args:
        kind: RelBench's name of the type of task.
        truth: labels as the metrics want them. Shape [seeds].
        predicted: per model its predictions for the validation seeds.
        label_std: spread of the training labels.
        seed: of the draws.
    """
    ranks = kind == "recommendation"
    metric, higher = ("map", True) if ranks else HEADS[kind].metric

    def score(values: NDArray[Any], rows: Any = slice(None)) -> float:
        return compute_metrics(kind, truth[rows], values[rows], label_std)[metric]

    alone = {name: score(values) for name, values in predicted.items()}
    badness = {name: -value if higher else value for name, value in alone.items()}
    first, *others = sorted(alone, key=lambda name: np.nan_to_num(badness[name], nan=np.inf))
    plain = Blend({first: 1.0}, alone[first], first, 0.0)
    if ranks or not others or np.isnan(alone[others[0]]):
        return plain  # scores of lists have no common scale
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(truth), min(len(truth), DRAWN)) for _ in range(DRAWS)]
    known = [score(predicted[first], rows) for rows in draws]

    def lost_and_won(values: NDArray[Any]) -> tuple[float, float]:
        """The shares of draws in which the values lose to the best model, and win."""
        drawn = [score(values, rows) for rows in draws]
        pairs = list(zip(drawn, known, strict=True))
        won = [better(ours, theirs, higher) for ours, theirs in pairs]
        lost = [better(theirs, ours, higher) for ours, theirs in pairs]
        return float(np.mean(lost)), float(np.mean(won))

    mixed = np.mean([predicted[name].astype(float) for name in (first, others[0])], axis=0)
    second_lost, _ = lost_and_won(predicted[others[0]])
    lost, won = lost_and_won(mixed)
    if max(second_lost, lost) >= CLEARLY:
        return plain
    return Blend({first: 0.5, others[0]: 0.5}, score(mixed), first, won)
