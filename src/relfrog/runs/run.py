"""Runs: a trained model with all that belongs to it, to evaluate, predict with and look into."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.config import Config
from relfrog.datasets.entities import Keys, key_frame, read_entities
from relfrog.datasets.metrics import REGIMES
from relfrog.errors import RunError, UsageError
from relfrog.graph.popularity import ListRequest
from relfrog.models.auto import read_blend
from relfrog.models.fit import load_model
from relfrog.models.model import Model
from relfrog.models.network import SELECTED, NetworkModel
from relfrog.models.run_folder import check_times, read_run, resume_command
from relfrog.nn.network import Network
from relfrog.nn.roles import role_of
from relfrog.runs.answers import ANSWERS
from relfrog.support.files import read_json
from relfrog.training.opened import OpenedTask, open_task
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    from relfrog.analysis.certificate import CertifyingRun
    from relfrog.analysis.explanation import Explanation

__all__ = ["Run", "chosen_device", "load_run"]


@dataclass(frozen=True, eq=False)
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
    """

    folder: Path
    about: dict[str, Any]
    config: Config
    device: str = "cpu"
    part: str = ""
    opened: OpenedTask | None = field(default=None, repr=False)
    fitted: Model | None = field(default=None, repr=False)

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
        self, split: str = "test", regime: str = "rolling"
    ) -> tuple[Seeds, NDArray[Any], NDArray[Any]]:
        """The labelled seeds of a split, their labels as metrics want them, and the predictions."""
        if split not in ("val", "test"):
            raise UsageError(f"split must be val or test (got {split!r}).")
        if regime not in REGIMES:
            raise UsageError(f"regime must be {' or '.join(REGIMES)} (got {regime!r}).")
        seeds = self.prepared.seeds(split)
        run = self.selected if split == "val" else self
        predicted = run.predict_seeds(seeds, self.prepared.cutoff(split, regime))
        return seeds, self.model.truth(seeds), predicted

    @cached_property
    def selected(self) -> Run:
        """What validation has selected: this run, unless its model was refitted afterwards."""
        if not self.config.refit or self.part:
            return self
        return replace(self, part=SELECTED, fitted=self.model.selected)

    def predict(
        self,
        at: Any = None,
        entities: Keys | None = None,
        *,
        k: int | None = None,
        targets: Keys | None = None,
        exclude_known: bool = False,
    ) -> pd.DataFrame:
        """Predictions for any time, with the source's own keys.

        Args:
            at: the time; by default the newest in the database. Only what was known by then is
                used.
            entities: whom for, in this order: a CSV or Parquet file with key columns, a data
                frame, or a list of keys; by default everyone who exists at that time.
            k: for a recommendation, the length of the lists; by default that of the task.
            targets: for a recommendation, what may be recommended, given as `entities` are; by
                default everything that exists at that time.
            exclude_known: for a recommendation, whether to leave out what the entity was joined to
                before: by a row with keys to both, or by an earlier label.

        Returns:
            One row per entity: its key, the time, and `prediction`: a probability, or a value in
            the label's unit; for several classes the likeliest and a probability for each; for
            several labels a probability for each. For a recommendation one row per entity and
            rank, the best first: both keys, the time, `rank` from 1, and `score`.
        """
        answers = ANSWERS[self.about["task_type"]]
        answers.check(k=k, targets=targets, exclude_known=exclude_known)
        task = self.prepared.task
        table = task.entity_table
        time = self.moment(at)
        where = self.prepared.dataset.dataset_dir
        count = self.prepared.graph.num_rows[table]
        primary = self.prepared.dataset.manifest.tables[table].pkey
        if entities is None:
            rows = np.flatnonzero(self.prepared.graph.visible(table, time))
            keys = key_frame(where, table, primary, rows)
            times = pd.Series(np.repeat(time.to_datetime64(), len(rows)))
        else:
            asked = read_entities(
                where, table, primary, count, entities, time_names=(task.time_col, "time", "at")
            )
            rows, keys = asked.rows, asked.keys
            times = (
                asked.times
                if asked.times is not None
                else pd.Series(np.repeat(time.to_datetime64(), len(rows)))
            )
        seeds = Seeds(rows, times)
        request = answers.request(self.prepared, seeds, k, targets, exclude_known)
        predicted = self.predict_seeds(seeds, None, request)
        return answers.frame(self.prepared, self.about["labels"], keys, seeds, predicted)

    def count(self, split: str) -> int:
        """Labelled seeds of a split."""
        return len(self.prepared.seeds(split))

    def roles(self) -> pd.DataFrame:
        """The learned role of each route: route, paradigm, tables, gate, role."""
        names = ["route", "paradigm", "u", "v", "w", "gate"]
        try:
            found = [[entry[name] for name in names] for entry in self._read("roles.json", list)]
            roles = [role_of(float(entry[-1])) for entry in found]
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged("roles.json", error) from None
        return pd.DataFrame(found, columns=names).assign(role=roles)

    def history(self) -> pd.DataFrame:
        """One row per epoch."""
        try:
            lines = (self.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
            return pd.DataFrame([dict(json.loads(line)) for line in lines])
        except (OSError, TypeError, ValueError) as error:
            raise self._damaged("history.jsonl", error) from None

    @property
    def metrics(self) -> dict[str, dict[str, dict[str, float]]]:
        """Scores of the saved weights, as they were computed after training: split, regime."""
        found = self._read("metrics.json", dict)
        try:
            return {split: _by_regime(found[split]) for split in ("val", "test")}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._damaged("metrics.json", error) from None

    @property
    def metrics_before_refit(self) -> dict[str, dict[str, float]]:
        """Test scores, by regime, of what validation had selected, before the refit."""
        if not self.config.refit:
            return self.metrics["test"]
        try:
            return _by_regime(self.about["refit"]["before"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._damaged("run.json", error) from None

    @property
    def baselines(self) -> dict[str, dict[str, dict[str, dict[str, float | None]]]]:
        """Scores of quick baselines beside this model: name, split, regime; empty without them."""
        if not (self.folder / "baselines.json").is_file():
            return {}
        found = self._read("baselines.json", dict).get("models")
        if not isinstance(found, dict):
            raise self._damaged("baselines.json", "no models")
        return found

    def _read(self, name: str, kind: type) -> Any:
        found = read_json(self.folder / name)
        if not isinstance(found, kind):
            raise self._damaged(name, f"a {type(found).__name__}, not a {kind.__name__}")
        return found

    def _damaged(self, name: str, why: object) -> RunError:
        return RunError(f"{self.folder / name} is damaged ({why}). Train again.")

    @cached_property
    def model(self) -> Model:
        """The fitted model, on the database as it is now."""
        if self.fitted is not None:
            return self.fitted
        opened = self.opened
        if opened is None:
            opened = open_task(self.about["dataset"], self.about["task"], **asdict(self.config))
        check_times(self.folder, opened.dataset)
        return load_model(
            self.folder, self.about, self.config, opened, device=self.device,
            selected=bool(self.part),
        )  # fmt: skip

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
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None
    ) -> NDArray[Any]:
        """Predictions as the metrics want them; see `relfrog.models.Model.predict`."""
        return self.model.predict(seeds, cutoff, request)

    # Questions to a run. They are answered in rooms that come later, hence the late imports.

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
        if at is None:
            newest = self.prepared.newest
            if newest is None:
                raise UsageError("the database has no times. Say which: --at 2026-01-01")
            return newest
        try:
            time = pd.Timestamp(at)
        except (ValueError, TypeError):
            raise UsageError(
                f"{at!r} is no time. Write it as 2026-01-01 or 2026-01-01T12:00."
            ) from None
        if time is pd.NaT:
            raise UsageError(f"{at!r} is no time. Write it as 2026-01-01.")
        if time.tzinfo:
            time = time.tz_convert("UTC").tz_localize(None)
        # In microseconds a time may be as far away as it likes.
        return time.as_unit("ns" if time.nanosecond else "us")


def _by_regime(found: Any) -> dict[str, dict[str, float]]:
    """Scores from JSON, NaN where there is none."""
    return {
        regime: {
            name: float("nan") if value is None else float(value)
            for name, value in found[regime].items()
        }
        for regime in REGIMES
    }


def load_run(folder: str | Path, *, device: str = "cpu") -> Run:
    """Open a run folder; nothing in it is executed.

    Raises:
        RunError: It is no run folder, is damaged, or its training has not ended.
    """
    folder = Path(folder).expanduser()
    about, config = read_run(folder)
    if about["status"] != "complete":
        raise RunError(f"{folder}: training has not ended. Go on with: {resume_command(folder)}")
    if not isinstance(about.get("labels"), dict):
        raise RunError(f"{folder}: damaged (run.json has no labels). Train again.")
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
