"""Runs: a trained model with its folder, to evaluate, predict with and analyse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray

from relfrog.config import Config
from relfrog.datasets.entities import Keys
from relfrog.datasets.metrics import REGIMES
from relfrog.errors import RunError, UsageError
from relfrog.graph.popularity import ListRequest
from relfrog.kinds import MODELS, TaskKind, member_model, task_kind
from relfrog.models.auto import NETWORK_MEMBER, read_blend
from relfrog.models.fit import load_model
from relfrog.models.model import Model
from relfrog.models.network_model import SELECTED, NetworkModel
from relfrog.models.postprocessing.bundle import Postprocessing
from relfrog.models.run_folder import MEMBERS, is_run, read_run, resume_command
from relfrog.nn.network import Network
from relfrog.runs.describe import Roles, run_html, run_line
from relfrog.runs.population import Population, find_population
from relfrog.runs.prediction_format import PREDICTION_FORMATS, stamp, warn_outside
from relfrog.runs.prediction_seeds import moment, seeds_to_predict
from relfrog.runs.saved_results import (
    read_baselines,
    read_history,
    read_metrics,
    read_roles,
    refit_before,
)
from relfrog.runs.what_if import beside, supposed_run
from relfrog.support.files import user_path
from relfrog.support.times import as_moments
from relfrog.training.opened_task import OpenedTask, open_task
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    from relfrog.analysis.certificate import CertifyingRun
    from relfrog.analysis.explanation import Explanation

__all__ = ["Run", "chosen_device", "load_run"]


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A trained model and its folder.

    Attributes:
        folder: the run folder.
        about: what was trained on what, from `run.json`.
        config: all settings.
        device: where to compute.
        part: the folder inside it that holds the model, if it is another than the run's own.
        opened: the task, where it is open already.
        fitted: the model, where it is in memory already.
        of: the run of `auto` that it is a member of, whose data it shares.
    """

    folder: Path
    about: dict[str, Any]
    config: Config
    device: str = "cpu"
    part: str = ""
    opened: OpenedTask | None = None
    fitted: Model | None = None
    of: Run | None = None

    def __repr__(self) -> str:
        return run_line(self)

    def _repr_html_(self) -> str:
        return run_html(self)

    def evaluate(self, split: str = "test", regime: str = "rolling") -> dict[str, float]:
        """Metrics on a split.

        Args:
            split: "val" or "test".
            regime: "rolling" (each seed sees everything up to its own time) or "frozen" (the
                database stops at the split's timestamp for all of them).
        """
        seeds, _, predicted = self.answers(split, regime)
        return self.model.metrics(seeds, predicted)

    def answers(
        self, split: str = "test", regime: str = "rolling", *, raw: bool = False
    ) -> tuple[Seeds, NDArray[Any], NDArray[Any]]:
        """The labelled seeds of a split, their labels for the metrics, and the predictions.

        Args:
            split: "val" or "test".
            regime: "rolling" or "frozen"; see `evaluate`.
            raw: whether to leave predictions as they were before calibration.
        """
        if split not in ("val", "test"):
            raise UsageError(f"split must be val or test (got {split!r}).")
        if regime not in REGIMES:
            raise UsageError(f"regime must be {' or '.join(REGIMES)} (got {regime!r}).")
        seeds = self.prepared.seeds(split)
        run = self.selected if split == "val" else self
        found = run.predict_seeds(seeds, self.prepared.cutoff(split, regime))
        return seeds, self.model.truth(seeds), found if raw else self.postprocessing.apply(found)

    @property
    def postprocessing(self) -> Postprocessing:
        """What turns raw predictions into answers: calibration, thresholds, intervals."""
        return self.model.postprocessing

    @property
    def refitted(self) -> bool:
        """Whether it has learned from validation labels, after they had selected it."""
        return bool(self.about.get("refit"))

    @cached_property
    def selected(self) -> Run:
        """The run of the model selected by validation: this run, unless it was refitted."""
        if not self.refitted or self.part:
            return self
        return replace(self, part=SELECTED, fitted=self.model.selected)

    def predict(
        self,
        at: Any = None,
        entities: Keys | None = None,
        *,
        everyone: bool = False,
        k: int | None = None,
        targets: Keys | None = None,
        exclude_known: bool = False,
        suppose: Mapping[str, Any] | None = None,
        stamped: bool = False,
    ) -> pd.DataFrame:
        """Predictions for any time, with the source's own keys.

        Args:
            at: the time; by default the newest in the database, or, where a column is filled in,
                the row's own. Only what was known by then is used.
            entities: whom for, in this order: a CSV or Parquet file with key columns, a data
                frame, or a list of keys; by default those whom the task asks about at that time,
                as `population` finds them, or, where a column is filled in, the rows that have no
                value.
            everyone: whether to predict for all entities that exist at that time instead.
            k: for a recommendation, the length of the lists; by default that of the task.
            targets: for a recommendation, what may be recommended, given as `entities` are; by
                default everything that exists at that time.
            exclude_known: for a recommendation, whether to leave out what the entity was joined to
                before: by a row with keys to both, or by an earlier label.
            suppose: hypothetical values by ``table.column``, for all entities that are asked about:
                of their own table, a value of their row; of a table that refers to it, an event at
                the time of the prediction. Predictions under them stand beside those without, in
                columns that end in ``_supposed``; see `relfrog.runs.what_if`.
            stamped: whether to add what `relfrog predict` writes beside each prediction: the run,
                the horizon, and when the prediction was made (`run`, `horizon`, `made_at`).

        Returns:
            One row per entity: its key, the time, and `prediction`: a calibrated probability, with
            `decision` (0 or 1) by the threshold of the run, or a value in the label's unit, with
            the ends of its interval, `low` and `high`; for several classes the likeliest and a
            probability for each; for several labels a probability and a decision for each. For a
            recommendation one row per entity and rank, the best first: both keys, the time, `rank`
            from 1, and `score`.

        Warns:
            RelFrogWarning: The time lies outside the data.
        """
        form = PREDICTION_FORMATS[self.about["task_type"]]
        form.check(k=k, targets=targets, exclude_known=exclude_known)
        keys, seeds = seeds_to_predict(
            self.prepared, at, entities, everyone, lambda time: self.population(time).rows
        )
        times = seeds.times if len(seeds) else as_moments([self.moment(at)])
        warn_outside(self.prepared.opened, times)
        frame = self.predict_range(keys, seeds, k, targets, exclude_known)
        if suppose is not None:
            other = supposed_run(self, suppose, seeds)
            supposed = other.predict_range(keys, seeds, k, targets, exclude_known)
            frame = beside(frame, supposed, self.kind.ranks)
        task = self.prepared.task
        horizon = None if task.completes else task.timedelta  # a value is filled in as of now
        return stamp(frame, self.folder, horizon) if stamped else frame

    def predict_range(
        self, keys: pd.DataFrame, seeds: Seeds, k: int | None, targets: Keys | None,
        exclude_known: bool,
    ) -> pd.DataFrame:  # fmt: skip
        """Answers for some seeds, as a table; see `predict`."""
        form = PREDICTION_FORMATS[self.about["task_type"]]
        request = form.request(self.prepared, seeds, k, targets, exclude_known)
        predicted = self.postprocessing.apply(self.predict_seeds(seeds, None, request, alone=True))
        more = self.postprocessing.columns(predicted)
        return form.frame(self.prepared, self.about["labels"], keys, seeds, predicted, more)

    def population(self, at: Any = None) -> Population:
        """Whom the task asks about at a time, by default the newest in the database.

        `predict` predicts for them unless it is told otherwise.
        """
        time = self.moment(at)
        if time not in self._populations:
            self._populations[time] = find_population(self.prepared, time)
        return self._populations[time]

    @cached_property
    def _populations(self) -> dict[pd.Timestamp, Population]:
        """Those that were found already."""
        return {}

    def count(self, split: str) -> int:
        """Labelled seeds of a split."""
        return len(self.prepared.seeds(split))

    def roles(self) -> pd.DataFrame:
        """The learned role of each route: route, paradigm, tables, gate, role.

        Those of a blend are those of its member FROG, whatever its weight: see `roles_weight`.
        """
        return Roles(read_roles((self.network_member or self).folder))

    @cached_property
    def network_member(self) -> Run | None:
        """Of a run of `auto`: the run of its member FROG, if that was trained; otherwise None."""
        ensemble = MODELS[self.config.model].ensemble
        if not ensemble or not is_run(self.folder / MEMBERS / NETWORK_MEMBER):
            return None
        return self.member(NETWORK_MEMBER)

    @property
    def networks(self) -> list[Run]:
        """Of a run of `auto`: the runs of its networks, one per seed; otherwise none."""
        if self.network_member is None:
            return []
        others = [
            name for name in self.blend["members"]
            if name != NETWORK_MEMBER and member_model(name).name == NETWORK_MEMBER
        ]  # fmt: skip
        return [self.network_member, *(self.member(name) for name in others)]

    @property
    def roles_weight(self) -> float:
        """The weight in this run's predictions of the network whose roles it has."""
        if not MODELS[self.config.model].ensemble:
            return 1.0
        return float(self.blend["weights"].get(NETWORK_MEMBER, 0.0))

    def member(self, name: str) -> Run:
        """The run of a member of `auto`, on the same opened task.

        Raises:
            RunError: There is no such member, or it is damaged.
        """
        about, config = read_run(self.folder / MEMBERS / name)
        return Run(self.folder / MEMBERS / name, about, config, self.device, of=self)

    def history(self) -> pd.DataFrame:
        """One row per epoch."""
        return read_history(self.folder)

    @property
    def metrics(self) -> dict[str, dict[str, dict[str, float]]]:
        """Scores of the saved weights, as they were computed after training: split, regime."""
        return read_metrics(self.folder)

    @property
    def metrics_before_refit(self) -> dict[str, dict[str, float]]:
        """Test scores, by regime, of what validation had selected, before the refit."""
        if not self.refitted:
            return self.metrics["test"]
        return refit_before(self.folder, self.about)

    @property
    def baselines(self) -> dict[str, dict[str, dict[str, dict[str, float | None]]]]:
        """Scores of the quick baselines by name, split and regime; empty if there are none."""
        return read_baselines(self.folder)

    def quick_scores(self) -> dict[str, dict[str, dict[str, dict[str, float | None]]]]:
        """Scores of the quick models that this one is compared with: name, split, regime."""
        if not MODELS[self.config.model].ensemble:
            return self.baselines
        return {
            name: found
            for name, found in self.blend["members"].items()
            if member_model(name).baseline and "test" in found
        }

    @cached_property
    def model(self) -> Model:
        """The fitted model, on the database as it is now."""
        if self.fitted is not None:
            return self.fitted
        opened = self.opened
        if opened is None and self.of is not None:
            if self.folder.name in self.of.model.members:
                return self.of.model.members[self.folder.name]
            opened = self.of.prepared.opened
        if opened is None:
            about = self.about
            opened = open_task(
                about["dataset"], about["task"], about.get("splits"), **asdict(self.config)
            )
        return load_model(
            self.folder, self.about, self.config, opened, device=self.device,
            selected=bool(self.part),
        )  # fmt: skip

    @property
    def kind(self) -> TaskKind:
        """The task type, with the metric that selected the model."""
        return task_kind(str(self.about["task_type"]), str(self.about["labels"].get("loss", "l1")))

    @property
    def quantile(self) -> float | None:
        """What is predicted, if it is a quantile."""
        value = self.about["labels"].get("quantile")
        return None if value is None else float(value)

    @property
    def prepared(self) -> Prepared:
        """The task and its database as the model reads them."""
        return self.model.prepared

    def need_network(self, why: str) -> None:
        """Refuse what only a network can answer.

        Raises:
            RunError: The model is no network.
        """
        if not isinstance(self.model, NetworkModel):
            raise RunError(
                f"{self.folder}: model {self.config.model} is no network: {why}. Train one: "
                "--model frog"
            )

    @property
    def network(self) -> Network:
        """The network with its weights.

        Raises:
            RunError: The model is no network.
        """
        self.need_network("it has no weights to look at")
        assert isinstance(self.model, NetworkModel)
        return self.model.network

    def on(self, opened: OpenedTask) -> Run:
        """The same run on another state of its database."""
        return replace(self, opened=opened, fitted=None)

    @property
    def blend(self) -> dict[str, Any]:
        """Of a run of `auto`: weights, and the validation scores of all members."""
        return read_blend(self.folder)

    def predict_seeds(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None, *,
        alone: bool = False,
    ) -> NDArray[Any]:  # fmt: skip
        """Raw predictions as the metrics want them; see `relfrog.models.Model.predict`.

        With `alone`, for each seed as if no other were asked about, and no cut-off.
        """
        if alone:
            return self.model.predict_alone(seeds, request)
        if request is None:
            return self.model.predict_once(seeds, cutoff)
        return self.model.predict(seeds, cutoff, request)

    # Analysis. These folders come later in the layers, hence the local imports.

    def explain(self, entity: Any, at: Any = None, *, rows: int = 40) -> Explanation:
        """The rows of the past behind one prediction; see `relfrog.analysis.explanation`."""
        from relfrog.analysis.explanation import explain

        return explain(self, entity, at, rows=rows)

    def certify(self, *, times: int | None = None) -> CertifyingRun:
        """The same run, certifying what it predicts; see `relfrog.analysis.certificate`."""
        from relfrog.analysis.certificate import certify

        return certify(self) if times is None else certify(self, times=times)

    def report(self, out: str | Path | None = None, **options: Any) -> Path:
        """Write one self-contained HTML file; see `relfrog.reporting.report`."""
        from relfrog.reporting import report

        return report(self, out, **options)

    def moment(self, at: Any = None) -> pd.Timestamp:
        """A time as predictions take it; by default the newest in the database."""
        return moment(self.prepared, at)


def load_run(folder: str | Path, *, device: str = "cpu") -> Run:
    """Open a run folder; nothing in it is executed.

    Raises:
        RunError: It is no run folder, is damaged, or its training has not ended.
    """
    folder = user_path(folder, RunError)
    about, config = read_run(folder)
    if about["status"] != "complete":
        raise RunError(f"{folder}: training has not ended. Go on with: {resume_command(folder)}")
    return Run(folder, about, config, chosen_device(device))


def chosen_device(asked: str | None) -> str:
    """A device that can be used; by default a GPU if there is one.

    Raises:
        UsageError: There is no such device.
    """
    import torch

    if asked is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=asked)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {asked!r} cannot be used: {str(error).splitlines()[0]}") from None
    return asked
