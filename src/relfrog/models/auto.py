"""`auto`: trains the trivial models, LightGBM and FROG, and takes the best or a blend of them.

Each member is a run folder of its own under `members`; `blend.json` says which of them answer, and
what all of them score on validation. All of them share one opened task.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.config import Config
from relfrog.datasets.metrics import compute_metrics
from relfrog.errors import RelFrogError, RunError, UsageError
from relfrog.graph.popularity import ListRequest
from relfrog.kinds import MODELS, TaskKind, models_for
from relfrog.models.fit import fit_model, load_model, make_model, prepare_for
from relfrog.models.model import Model
from relfrog.models.run_folder import BLEND, MEMBERS, begin, is_run, read_run
from relfrog.support.files import atomic_folder, read_json, write_json
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback, announce
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["AutoModel", "Blend", "choose", "member_names", "read_blend"]


def member_names(kind: str) -> list[str]:
    """What `auto` trains for a type of task, the quickest first."""
    names = [model.name for model in models_for(kind) if model.baseline]
    return [*sorted(names, key=lambda name: name == "lightgbm"), "frog"]


def member_settings(name: str, config: Config) -> Config:
    """What a member is trained with."""
    settings = asdict(config) | {"model": name}
    if name != "frog":
        settings["roles"] = "learned"
    if not MODELS[name].network:
        settings["history"] = "on"
    if not MODELS[name].learns:
        settings["refit"] = False
    return Config(**settings)


def read_blend(folder: Path) -> dict[str, Any]:
    """Which members of a run of `auto` answer, with which weights, and what all of them score.

    Raises:
        RunError: The file is missing or damaged.
    """
    found = read_json(folder / BLEND)
    weights = found.get("weights") if isinstance(found, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise RunError(f"{folder / BLEND} is damaged (no weights). Train again.")
    if not set(weights) <= set(MODELS) - {"auto"}:
        names = ", ".join(weights)
        raise RunError(f"{folder / BLEND} is damaged (no such models: {names}). Train again.")
    return dict(found)


class AutoModel(Model):
    """Several models, of which the best or a blend of the best two answers."""

    def __init__(self, prepared: Prepared, labels: dict[str, Any], **options: Any) -> None:
        super().__init__(prepared, labels, **options)
        self._members: dict[str, Model] = {}
        self._weights: dict[str, float] = {}
        self._blend: dict[str, Any] = {}
        #: Finished runs by model: members that need not be trained again if they are the same.
        self.finished: Mapping[str, str | Path] = {}

    @property
    def members(self) -> dict[str, Model]:
        """The members that answer."""
        return {name: self._members[name] for name in self._weights}

    def fit(
        self, folder: Path, budget: Budget = UNLIMITED, callbacks: Sequence[Callback] = (), *,
        resume: bool = False,
    ) -> None:  # fmt: skip
        """Train all members for which there is time, and choose by validation.

        Members that are there already are taken as they are, or resumed where they stopped.

        Raises:
            RunError: No member could be trained.
        """
        config = self.prepared.config
        about, _ = read_run(folder)
        before = [
            self._take_over(Path(source), folder / MEMBERS / name, name, about)
            for name, source in self.finished.items()
        ]
        budget = Budget(min(budget.until, Budget.of_minutes(config.minutes).until))
        records: dict[str, dict[str, Any]] = {}
        skipped: dict[str, str] = {}
        for name in member_names(self.kind.name):
            place = folder / MEMBERS / name
            if self._members and not is_run(place) and budget.over:
                skipped[name] = f"the {config.minutes:g} minutes were over"
                announce(callbacks, f"auto: {name} left out: {skipped[name]}")
                continue
            announce(callbacks, f"auto: {name}")
            # A search may use half of the time left: the network comes last and needs some too.
            own = budget if MODELS[name].network else budget.half()
            try:
                self._members[name], records[name] = self._member(
                    name, place, about, own, callbacks
                )
            except RelFrogError as error:
                # A member that does not fit the data is no reason to lose the others.
                skipped[name] = str(error)
                announce(callbacks, f"auto: {name} left out: {error}")
        if not self._members:
            raise RunError(f"auto: no model could be trained. {next(iter(skipped.values()), '')}")
        blend = self._choose()
        self._weights = blend.weights
        words = ", ".join(f"{name} {weight:.2f}" for name, weight in blend.weights.items())
        announce(callbacks, f"auto: {words}")
        self._blend = asdict(blend) | {
            "regime": config.regime, "members": records, "skipped": skipped,
        }  # fmt: skip
        self.facts = {"seconds_before": sum(before)}

    def _member(
        self, name: str, place: Path, about: dict[str, Any], budget: Budget,
        callbacks: Sequence[Callback],
    ) -> tuple[Model, dict[str, Any]]:  # fmt: skip
        """A member, trained, resumed or loaded, and what is recorded of it."""
        opened, config = self.prepared.opened, member_settings(name, self.prepared.config)
        begun = is_run(place)
        if begun:
            theirs, kept = read_run(place)
            if theirs["status"] == "complete":
                model = load_model(place, theirs, kept, opened, device=self.device)
                return model, _record(place, theirs)
            if kept != config:
                raise UsageError(f"{place} was begun with other settings: train auto anew.")
        prepared = prepare_for(opened, config)
        if not begun:
            gates = about.get("gates") if MODELS[name].network else None
            place.parent.mkdir(exist_ok=True)
            theirs = begin(
                place, prepared, config, dataset=about["dataset"], task=about["task"], gates=gates
            )
        model = make_model(prepared, theirs, self.device)
        theirs = fit_model(model, place, theirs, budget=budget, callbacks=callbacks, resume=begun)
        return model, _record(place, theirs)

    def _take_over(self, source: Path, place: Path, name: str, about: dict[str, Any]) -> float:
        """Copy a finished run to be a member, if it is the one that would be trained.

        Returns:
            The seconds that its training took; 0 if it is another.
        """
        try:
            theirs, settings = read_run(source)
        except RelFrogError:
            return 0.0
        gates = about.get("gates") if MODELS[name].network else None
        mine = {**about, "status": "complete", "gates": gates}
        same = all(
            theirs.get(part) == mine[part] for part in ("dataset", "task", "status", "gates")
        )
        config = member_settings(name, self.prepared.config)
        if not same or is_run(place) or settings != config:
            return 0.0
        with atomic_folder(place, True, lambda _: "") as partial:
            shutil.copytree(source, partial, dirs_exist_ok=True)
        return float(theirs["seconds"])

    def _choose(self) -> Blend:
        """The blend that validation scores favour."""
        config = self.prepared.config
        val = self.prepared.seeds("val")
        cutoff = self.prepared.cutoff("val", config.regime)
        predicted = {
            name: model.selected.predict(val, cutoff) for name, model in self._members.items()
        }
        return choose(self.kind, self.truth(val), predicted, self.labels.get("std"), config.seed)

    @cached_property
    def selected(self) -> Model:
        """The same blend of what validation had selected of each member."""
        if not self.prepared.config.refit:
            return self
        other = self._copy()
        assert isinstance(other, AutoModel)
        other._members = {name: model.selected for name, model in self._members.items()}
        other.selected = other
        return other

    def save(self, folder: Path) -> None:
        """Which members answer; they themselves are in their folders already."""
        write_json(folder / BLEND, self._blend)

    def load(self, folder: Path) -> None:
        """The members that answer, each from its folder."""
        self._blend = read_blend(folder)
        self._weights = {name: float(w) for name, w in self._blend["weights"].items()}
        for name in self._weights:
            about, config = read_run(folder / MEMBERS / name)
            self._members[name] = load_model(
                folder / MEMBERS / name, about, config, self.prepared.opened, device=self.device
            )

    def predict(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None
    ) -> NDArray[Any]:
        """The weighted mean of the members' predictions; of lists the one member's."""
        if self.kind.ranks:
            return next(iter(self.members.values())).predict(seeds, cutoff, request)
        parts = [
            self._weights[name] * model.predict(seeds, cutoff)
            for name, model in self.members.items()
        ]
        return np.asarray(np.sum(parts, axis=0))


def _record(place: Path, about: dict[str, Any]) -> dict[str, Any]:
    """What `blend.json` says of a member."""
    return {"val": read_json(place / "metrics.json")["val"], "seconds": about["seconds"]}


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
    kind: TaskKind,
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
        kind: the type of task.
        truth: labels as the metrics want them. Shape [seeds].
        predicted: per model its predictions for the validation seeds.
        label_std: spread of the training labels.
        seed: of the draws.
    """

    def score(values: NDArray[Any], rows: Any = slice(None)) -> float:
        found = compute_metrics(kind.name, truth[rows], values[rows], label_std, kind.metric)
        return found[kind.metric]

    alone = {name: score(values) for name, values in predicted.items()}
    badness = {name: -value if kind.higher else value for name, value in alone.items()}
    first, *others = sorted(alone, key=lambda name: np.nan_to_num(badness[name], nan=np.inf))
    plain = Blend({first: 1.0}, alone[first], first, 0.0)
    if kind.ranks or not others or np.isnan(alone[others[0]]):
        return plain  # scores of lists have no common scale
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(truth), min(len(truth), DRAWN)) for _ in range(DRAWS)]
    known = [score(predicted[first], rows) for rows in draws]

    def lost_and_won(values: NDArray[Any]) -> tuple[float, float]:
        """The shares of draws in which the values lose to the best model, and win."""
        drawn = [score(values, rows) for rows in draws]
        pairs = list(zip(drawn, known, strict=True))
        won = [kind.better(ours, theirs) for ours, theirs in pairs]
        lost = [kind.better(theirs, ours) for ours, theirs in pairs]
        return float(np.mean(lost)), float(np.mean(won))

    mixed = np.mean([predicted[name].astype(float) for name in (first, others[0])], axis=0)
    second_lost, _ = lost_and_won(predicted[others[0]])
    lost, won = lost_and_won(mixed)
    if max(second_lost, lost) >= CLEARLY:
        return plain
    return Blend({first: 0.5, others[0]: 0.5}, score(mixed), first, won)
