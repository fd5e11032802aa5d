"""Runs: a trained model with all that belongs to it, to evaluate, predict with and look into."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.config import Config
from relfrog.datasets.dataset import open_dataset, read_tables
from relfrog.datasets.entities import Keys, key_frame, read_entities
from relfrog.datasets.metrics import REGIMES, compute_metrics
from relfrog.datasets.tasks import load_task
from relfrog.errors import RunError, UsageError
from relfrog.features.columns import Columns
from relfrog.features.novelty import warn_of_new_categories
from relfrog.graph.popularity import Wish
from relfrog.kinds import BASELINES, NETWORKS
from relfrog.models.memory_check import check_room
from relfrog.models.network import predict_seeds
from relfrog.models.prepared import Prepared, Seeds, prepare, seeds_of, shown_database
from relfrog.models.registry import Baseline, baseline_class
from relfrog.nn.heads import HEADS, Head
from relfrog.nn.roles import role_of
from relfrog.support.files import load_tensors, read_json
from relfrog.support.text import free_name
from relfrog.support.threads import computing
from relfrog.training.recommendation import list_table, wanted_lists
from relfrog.training.run_folder import BLEND, CHOSEN, MEMBERS, read_run, resume_command

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
    """

    folder: Path
    about: dict[str, Any]
    config: Config
    device: str = "cpu"
    part: str = ""

    def evaluate(self, split: str = "test", regime: str = "rolling") -> dict[str, float]:
        """Metrics on a split.

        Args:
            split: "val" or "test".
            regime: "rolling" (each seed sees everything up to its own time) or "frozen" (the
                database stops at the split's timestamp for all of them).
        """
        _, truth, predicted = self.answers(split, regime)
        return compute_metrics(
            self.about["task_type"], truth, predicted, self.about["labels"].get("std")
        )

    def answers(
        self, split: str = "test", regime: str = "rolling"
    ) -> tuple[Seeds, NDArray[Any], NDArray[Any]]:
        """The labelled seeds of a split, their labels as metrics want them, and the predictions."""
        if split not in ("val", "test"):
            raise UsageError(f"split must be val or test (got {split!r}).")
        if regime not in REGIMES:
            raise UsageError(f"regime must be {' or '.join(REGIMES)} (got {regime!r}).")
        seeds = seeds_of(self.prepared.task, split)
        one = self.selected if split == "val" else self
        predicted = one.predict_seeds(seeds, self.prepared.cutoff(split, regime))
        return seeds, self.truth(seeds), predicted

    @cached_property
    def selected(self) -> Run:
        """What validation has chosen: this run, unless its model was then learned once more.

        A model that has learned from validation labels cannot be scored on them.
        """
        if not self.config.refit or self.part:
            return self
        other = replace(self, part=CHOSEN)
        vars(other)["prepared"] = self.prepared
        return other

    def truth(self, seeds: Seeds) -> NDArray[Any]:
        """Labels as the metrics want them. Shape [seeds]."""
        assert seeds.labels is not None
        ranks = self.about["task_type"] == "recommendation"
        return seeds.labels if ranks else self.head.truth(seeds.labels)

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
        ranks = self.about["task_type"] == "recommendation"
        if not ranks and (k is not None or targets is not None or exclude_known):
            raise UsageError(
                "k, targets and exclude_known are for recommendations only. Leave them out."
            )
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
        if ranks:
            wish = wanted_lists(self.prepared, seeds, k, targets, exclude_known)
            return list_table(self.prepared, keys, seeds, self.predict_seeds(seeds, None, wish))
        predicted = self.predict_seeds(seeds, None)
        frame = keys.reset_index(drop=True)
        taken = {str(column).lower() for column in frame}
        for name, values in {
            "time": times.to_numpy(),
            **self.head.columns(predicted),
        }.items():
            frame[free_name(name, taken)] = values
        return frame

    def count(self, split: str) -> int:
        """Labelled seeds of a split."""
        return len(seeds_of(self.prepared.task, split))

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
        """Test scores, by regime, of what validation had chosen before it learned once more."""
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
    def prepared(self) -> Prepared:
        """The database as it is now, through the columns of the run."""
        dataset = open_dataset(self.about["dataset"])
        check_room(str(self.about["dataset"]), read_tables(dataset), **asdict(self.config))
        task = load_task(dataset, self.about["task"])
        columns = Columns.load(self.folder)
        made = prepare(dataset, task, self.config, columns, encode=self.encodes)
        warn_of_new_categories(made.unseen, self.folder)
        return made

    @property
    def encodes(self) -> bool:
        """Whether the model reads columns as numbers, rather than the tables themselves."""
        if self._baseline_class is not None:
            return self._baseline_class.encoded
        return self.config.model in NETWORKS

    @property
    def _baseline_class(self) -> type[Baseline] | None:
        if self.config.model not in BASELINES:
            return None
        return baseline_class(self.config.model, self.about["task_type"])

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The tables that the model sees, with their values; read when first asked for."""
        db, _ = shown_database(self.prepared.dataset, self.prepared.task, self.config)
        return dict(db.table_dict)

    @cached_property
    def baseline(self) -> Baseline | None:
        """The model, if it is no network."""
        if self._baseline_class is None:
            return None
        baseline = self._baseline_class(self.prepared, self.about["labels"])
        baseline.load(self.folder / self.part)
        return baseline

    @cached_property
    def blend(self) -> dict[str, Any]:
        """Of a run of `auto`: weights, and the validation scores of all members."""
        found = self._read(BLEND, dict)
        weights = found.get("weights")
        if not isinstance(weights, dict) or not weights:
            raise self._damaged(BLEND, "no weights")
        if not set(weights) <= {*NETWORKS, *BASELINES}:
            raise self._damaged(BLEND, f"no such models: {', '.join(weights)}")
        return dict(found)

    @cached_property
    def members(self) -> dict[str, Run]:
        """Of a run of `auto`: those that answer."""
        found = {
            name: load_run(self.folder / MEMBERS / name, device=self.device)
            for name in self.blend["weights"]
        }
        return {name: run.selected for name, run in found.items()} if self.part else found

    @cached_property
    def head(self) -> Head:
        """What labels and predictions mean."""
        return HEADS[self.about["task_type"]].build(self.about["labels"], 1, 0.0)

    @cached_property
    def network(self) -> Any:
        """The network with the saved weights."""
        tensors = load_tensors(self.folder / self.part / "model.safetensors")
        weights = {k[8:]: v for k, v in tensors.items() if k.startswith("network.")}
        fixed = None
        if self.config.roles == "fixed":
            roles = self.roles()
            fixed = dict(zip(roles["route"], roles["gate"], strict=True))
        network = self.prepared.network(self.about["labels"], fixed)
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            text = " ".join(str(error).split())[:300]
            raise RunError(
                f"{self.folder}: the weights do not fit the dataset as it is now ({text}). "
                "Its tables or keys have changed: train again."
            ) from None
        return network.to(self.device).eval()

    def predict_seeds(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, wish: Wish | None = None
    ) -> Any:
        """Predictions as the metrics want them; see `relfrog.models.network.predict_seeds`."""
        import torch

        if self.config.model == "auto":
            if self.about["task_type"] == "recommendation":  # always a single one
                return next(iter(self.members.values())).predict_seeds(seeds, cutoff, wish)
            weights = self.blend["weights"]
            parts = [
                float(weights[name]) * run.predict_seeds(seeds, cutoff)
                for name, run in self.members.items()
            ]
            return np.sum(parts, axis=0)
        if self.baseline is not None:
            return self.baseline.predict(seeds, cutoff, wish)
        loader = self.prepared.loader(seeds, cutoff=cutoff)
        device = torch.device(self.device)
        features = {name: part.to(device) for name, part in self.prepared.features.items()}
        with computing(self.config.threads):
            return predict_seeds(self.network, loader, features, device, wish)

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
