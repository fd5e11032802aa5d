"""`auto`: trains simple baselines, LightGBM and FROG, and uses the best or a blend of the best.

Each member has a run folder under `members`; `blend.json` holds the weights of the blend and the
validation scores of all members. All members share one opened task.

Members that are no networks are chosen and weighed by backtests: what each would have predicted at
earlier times. The backtests of LightGBM also decide about the refit, its own and that of networks.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfrog.config import Config
from relfrog.errors import ClusterError, RelFrogError, RunError
from relfrog.graph.popularity import ListRequest
from relfrog.kinds import MODELS, member_model, models_for
from relfrog.models.auto_members import fit_member, run_members
from relfrog.models.backtest import helps
from relfrog.models.blend import Blend, DatedLabels, choose
from relfrog.models.boosting import BoostedTrees
from relfrog.models.fit import load_model
from relfrog.models.model import Model, TableChange
from relfrog.models.out_of_time import earlier_folds, training_seeds
from relfrog.models.run_folder import BACKTESTS, BLEND, MEMBERS, is_run, read_run
from relfrog.models.run_forms import BLEND_FORM, BacktestsFile
from relfrog.support.files import atomic_folder, write_json
from relfrog.support.forms import read_json
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback, announce
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NETWORK_MEMBER", "AutoModel", "member_names", "read_blend"]

#: The graph network among the members.
NETWORK_MEMBER = "frog"
#: How far the seeds of the networks of two runs with neighbouring seeds are apart.
SEEDS_BETWEEN = 1000


def member_names(kind: str) -> list[str]:
    """The members of `auto` for a task type, the quickest first."""
    names = [model.name for model in models_for(kind) if model.baseline]
    return [*sorted(names, key=lambda name: MODELS[name].learns), NETWORK_MEMBER]


def member_settings(name: str, config: Config) -> Config:
    """The settings of a member."""
    model = member_model(name).name
    settings = asdict(config) | {"model": model}
    if name != model:
        # Not the seed of a neighbouring run: the runs of several seeds are to be independent.
        number = int(name.rpartition("-")[2])
        settings["seed"] = (SEEDS_BETWEEN * (config.seed + 1) + number) % (1 << 62)
    name = model
    if not MODELS[name].roles:
        settings["roles"] = "learned"
    if not MODELS[name].network:
        settings["history"] = "on"
    if not MODELS[name].learns:
        settings["refit"] = "off"
    return Config(**settings)


def read_blend(folder: Path) -> dict[str, Any]:
    """Read `blend.json`: the weights of the blend, and the scores of all members.

    Raises:
        RunError: The file is missing or damaged.
    """
    found = read_json(folder / BLEND, BLEND_FORM)
    names = {*found["weights"], *found.get("members", ())}
    try:
        if not any(member_model(name).ensemble for name in names):
            return dict(found)
    except KeyError:
        pass
    text = ", ".join(sorted(names)[:5])
    raise RunError(f"{folder / BLEND} is damaged (no such models: {text}). Train again.")


class AutoModel(Model):
    """An ensemble: the best of several models, or a blend of the best few."""

    def __init__(self, prepared: Prepared, labels: dict[str, Any], **options: Any) -> None:
        super().__init__(prepared, labels, **options)
        self._members: dict[str, Model] = {}
        self._weights: dict[str, float] = {}
        self._blend: dict[str, Any] = {}
        #: Finished runs by model, reused as members if their settings are the same.
        self.finished: Mapping[str, str | Path] = {}

    @property
    def members(self) -> dict[str, Model]:
        """The members with a weight in the blend."""
        return {name: self._members[name] for name in self._weights}

    def fit(
        self, folder: Path, budget: Budget = UNLIMITED, callbacks: Sequence[Callback] = (), *,
        resume: bool = False,
    ) -> None:  # fmt: skip
        """Train members within the time budget, and select by backtests and validation.

        Finished members are reused, unfinished ones are resumed.

        Raises:
            RunError: No member could be trained.
        """
        config = self.prepared.config
        about, _ = read_run(folder)
        before = [
            self._take_over(Path(source), folder / MEMBERS / name, name, about)
            for name, source in self.finished.items()
            if not MODELS[name].network
        ]
        budget = replace(budget, until=min(budget.until, Budget.of_minutes(config.minutes).until))
        records: dict[str, dict[str, Any]] = {}
        skipped = self._fit_elsewhere(folder, about, budget, callbacks)
        for name, why in skipped.items():
            announce(callbacks, f"auto: {name} left out: {why}")
        for name in member_names(self.kind.name):
            place = folder / MEMBERS / name
            if name in skipped:
                continue
            # Quick models cost nothing, and the answer is to be no worse than theirs.
            if MODELS[name].learns and self._members and not is_run(place) and budget.over:
                skipped[name] = f"the {config.minutes:g} minutes were over"
                announce(callbacks, f"auto: {name} left out: {skipped[name]}")
                continue
            if MODELS[name].network and name in self.finished and not self._refit_helps(folder):
                before.append(self._take_over(Path(self.finished[name]), place, name, about))
            # A search may use half of the remaining time, as the network comes last.
            own = budget if MODELS[name].network else budget.share(2)
            failed = self._fit_member(name, place, about, own, callbacks, records)
            if failed:  # the other members can still be used
                skipped[name] = failed
        if not self._members:
            raise RunError(f"auto: no model could be trained. {next(iter(skipped.values()), '')}")
        blend = self._choose()
        if NETWORK_MEMBER in blend.weights and not self.kind.ranks:
            self._fit_more_networks(folder, about, budget, callbacks, records)
            blend = self._choose()
        self._weights = self._shared_among_networks(blend.weights)
        announce(callbacks, f"auto: {blend.words}")
        self._blend = asdict(blend) | {
            "weights": self._weights, "regime": config.regime, "members": records,
            "skipped": skipped,
        }  # fmt: skip
        self.facts = {"seconds_before": sum(before)}

    def _fit_member(
        self, name: str, place: Path, about: dict[str, Any], budget: Budget,
        callbacks: Sequence[Callback], records: dict[str, dict[str, Any]],
    ) -> str:  # fmt: skip
        """Train, resume or load a member, and add its record; return why it failed, if it did."""
        announce(callbacks, f"auto: training {name}")
        try:
            self._members[name], records[name] = fit_member(
                self.prepared.opened, member_settings(name, self.prepared.config), place, about,
                budget=budget, callbacks=callbacks, device=self.device, team=self.team,
                workers=self.workers, refit_helps=self._refit_helps(place.parent.parent),
            )  # fmt: skip
            for callback in callbacks:
                callback.on_member(name, place, self._members[name], records[name])
        except ClusterError:
            raise  # nothing is wrong with the member, which can be resumed
        except RelFrogError as error:
            announce(callbacks, f"auto: {name} left out: {error}")
            return str(error)
        return ""

    def _refit_helps(self, folder: Path) -> bool:
        """Whether networks are to be refitted, too: by what LightGBM's backtests say of it."""
        if self.prepared.config.refit != "auto" or self.kind.ranks:
            return False
        path = folder / MEMBERS / "lightgbm" / BACKTESTS
        found = read_json(path, BacktestsFile) if path.is_file() else {}
        return helps(found.get("newer_labels"))

    def _fit_more_networks(
        self, folder: Path, about: dict[str, Any], budget: Budget, callbacks: Sequence[Callback],
        records: dict[str, dict[str, Any]],
    ) -> None:  # fmt: skip
        """Train the network from other seeds, while there is time for one that takes as long.

        What one network owes to its seed the mean of several does not.
        """
        took = float(records[NETWORK_MEMBER]["seconds"])
        for number in range(2, self.prepared.config.networks + 1):
            name = f"{NETWORK_MEMBER}-{number}"
            place = folder / MEMBERS / name
            if not is_run(place) and budget.over_in(took):
                return
            if self._fit_member(name, place, about, budget, callbacks, records):
                return

    @property
    def _networks(self) -> list[str]:
        """The members that are the network, from one seed each."""
        return [name for name in self._members if member_model(name).name == NETWORK_MEMBER]

    def _shared_among_networks(self, weights: Mapping[str, float]) -> dict[str, float]:
        """The weight of the mean of all networks, as weights of each."""
        names = self._networks
        shared = dict[str, float]()
        for name, weight in weights.items():
            for each in names if name == NETWORK_MEMBER else [name]:
                shared[each] = weight / len(names) if name == NETWORK_MEMBER else weight
        return shared

    def _fit_elsewhere(
        self, folder: Path, about: dict[str, Any], budget: Budget, callbacks: Sequence[Callback]
    ) -> dict[str, str]:
        """Train members that are no networks in other processes; return why some failed."""
        config, workers = self.prepared.config, self.workers
        names = [
            name
            for name in member_names(self.kind.name)
            if not MODELS[name].network and not is_run(folder / MEMBERS / name)
            and not (config.distributed and MODELS[name].learns)
        ]  # fmt: skip
        if workers is None or not names:
            return {}
        announce(callbacks, f"auto: {', '.join(names)}, in other processes")
        settings = {name: member_settings(name, config) for name in names}
        found = run_members(
            workers, self.prepared, settings, folder / MEMBERS, about, budget.share(2), self.device
        )
        return {name: error for name, error in found.items() if error}

    def _take_over(self, source: Path, place: Path, name: str, about: dict[str, Any]) -> float:
        """Copy a finished run as a member, if dataset, task and settings are the same.

        Returns:
            The seconds that its training took; 0 if it is not reused.
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
        """Choose the blend; all networks are one of its models."""
        config = self.prepared.config
        val = self.prepared.seeds("val")
        cutoff = self.prepared.cutoff("val", config.regime)
        predicted = {
            name: model.selected.predict_once(val, cutoff) for name, model in self._members.items()
        }
        if NETWORK_MEMBER in predicted and not self.kind.ranks:
            networks = [predicted.pop(name) for name in self._networks]
            predicted[NETWORK_MEMBER] = np.mean(networks, axis=0)
        quick = [name for name in predicted if MODELS[name].baseline]
        return choose(
            self.kind, self.truth(val), predicted, self.labels, earlier=self._earlier(),
            quick=quick, seed=config.seed,
        )  # fmt: skip

    def _earlier(self) -> list[DatedLabels]:
        """What members that are no networks would have predicted before validation."""
        if self.kind.ranks:
            return []
        members = {name: member.selected for name, member in self._members.items()}
        train, trees = training_seeds(self.prepared), members.get("lightgbm")
        folds = earlier_folds(self.prepared)
        if isinstance(trees, BoostedTrees):
            folds = [] if trees.foretold is None else trees.foretold.folds
        found = {name: member.foretell(folds) for name, member in members.items()}
        return [
            DatedLabels(
                self.truth(train.take(fold.scored)),
                {name: parts[n] for name, parts in found.items() if parts is not None},
            )
            for n, fold in enumerate(folds)
        ]

    def with_change(self, change: TableChange) -> AutoModel | None:
        """The same blend of the members, each on the changed task."""
        changed = {name: member.with_change(change) for name, member in self.members.items()}
        members = {name: member for name, member in changed.items() if member is not None}
        if len(members) < len(changed):
            return None
        other = self._on(change.opened)
        other._members = members
        return other

    @property
    def refitted(self) -> bool:
        """Whether one of the members has learned from validation labels."""
        return any(member.refitted for member in self.members.values())

    @cached_property
    def selected(self) -> Model:
        """The same blend of the members before their refit."""
        if not self.refitted:
            return self
        other = self._copy()
        other._members = {name: model.selected for name, model in self._members.items()}
        other.selected = other
        return other

    def save(self, folder: Path) -> None:
        """Write `blend.json`; the members are saved in their own folders."""
        write_json(folder / BLEND, self._blend)

    def load(self, folder: Path) -> None:
        """Load the members of the blend from their folders."""
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
        """The weighted mean of the members' predictions; for lists, those of the best member."""
        if self.kind.ranks:
            best = next(iter(self.members.values()))
            if request is None:
                return best.predict_once(seeds, cutoff)
            return best.predict(seeds, cutoff, request)
        return self._blended(lambda model: model.predict_once(seeds, cutoff))

    def predict_alone(self, seeds: Seeds, request: ListRequest | None = None) -> NDArray[Any]:
        """As `predict`, for each seed as if no other were asked about; see `Model`."""
        if self.kind.ranks:
            return next(iter(self.members.values())).predict_alone(seeds, request)
        return self._blended(lambda model: model.predict_alone(seeds))

    def _blended(self, predicted: Callable[[Model], NDArray[Any]]) -> NDArray[Any]:
        """The weighted mean of what the members predict."""
        parts = [self._weights[name] * predicted(model) for name, model in self.members.items()]
        return np.asarray(np.sum(parts, axis=0))
