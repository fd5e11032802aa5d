"""Certificates: the rows used by predictions, and a proof that later rows do not affect them.

A certificate states for every prediction how many rows of each table it used and the time of the
newest; and the outcome of a trial in which all rows after its time, and all rows that name them,
were altered, removed and invented, and the prediction was repeated: it must be bit-for-bit
identical. Tables that are always visible cannot be tried like that; the certificate names them.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog._version import __version__
from relfrog.analysis.altered_future import WAYS, Readings, Tampering
from relfrog.analysis.reservations import always_visible, sentence, visible_too_early
from relfrog.analysis.rows_used import rows_behind, rows_visible
from relfrog.datasets.entities import key_frame
from relfrog.errors import OutputError, TaskError, UsageError
from relfrog.graph.popularity import ListRequest, joined_before
from relfrog.models.model import Model
from relfrog.models.network_model import NetworkModel
from relfrog.runs.run import Run
from relfrog.support.text import free_name
from relfrog.support.times import MISSING
from relfrog.training.altered_task import AlteredTask
from relfrog.training.seeds import Seeds

__all__ = ["Certificate", "CertifyingRun", "certify"]

FORMAT = 1
#: Default for the most distinct times at which the trial is run.
MOST_TIMES = 8
#: The most entities listed in the JSON file; the Parquet file has all.
LISTED = 50


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """The certificate of some predictions.

    Attributes:
        about: everything except the entities, as JSON values; `holds` and `sentence` sum it up.
        entities: per entity and table its key, the time, the newest time used (NaT if no row has
            a time), and the number of rows used.
    """

    about: dict[str, Any]
    entities: pd.DataFrame

    def __repr__(self) -> str:
        outcome = "holds" if self.holds else "DOES NOT HOLD"
        return f"Certificate({outcome}: {self.about['predictions']:,} predictions)"

    @property
    def holds(self) -> bool:
        """Whether no later row was used or changed a prediction."""
        return bool(self.about["holds"])

    @property
    def sentence(self) -> str:
        """What is certified, and what it cannot vouch for; or why it does not hold."""
        return sentence(self.about)

    def save(self, stem: Path, **more: Any) -> Path:
        """Write `STEM.certificate.json`, and the entities as `STEM.certificate.parquet`.

        Args:
            stem: the file of the predictions, or any name.
            more: further entries of the JSON file.

        Returns:
            The JSON file.
        """
        from relfrog.support.files import atomic_file, write_json

        beside = stem.with_name(f"{stem.name}.certificate.parquet")
        with atomic_file(beside, overwrite=True) as partial:
            self.entities.to_parquet(partial, index=False)
        listed = None
        if len(self.entities) <= LISTED * max(1, self.entities["table"].nunique()):
            listed = [
                {name: _plain(value) for name, value in row.items()}
                for row in self.entities.to_dict("records")
            ]
        out = stem.with_name(f"{stem.name}.certificate.json")
        content = {
            "sentence": self.sentence,
            **self.about,
            **more,
            "entities_file": beside.name,
            "entities": listed,
        }
        try:
            write_json(out, {**content, "entities_sha256": sha256(beside)})
        except OSError as error:
            raise OutputError(f"{out} cannot be written: {error.strerror}.") from None
        return out


def sha256(path: Path) -> str:
    """The SHA-256 of a file's contents."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    if value is None or value is pd.NaT:
        return None
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, eq=False, repr=False)
class CertifyingRun(Run):
    """A run that certifies its predictions; `certificate` is the last certificate.

    Predictions are made time by time: for entities at different times, they may differ from those
    of the run itself in the last digit of a float.

    Attributes:
        times: the most distinct times at which the trial is run; 0 for all.
        found: all certificates.
    """

    times: int = MOST_TIMES
    found: list[Certificate] = field(default_factory=list)

    @property
    def certificate(self) -> Certificate:
        """The certificate of the last predictions."""
        return self.found[-1]

    def predict_seeds(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None, *,
        alone: bool = False,
    ) -> Any:  # fmt: skip
        """Predict, and append a certificate."""
        graph = self.prepared.graph
        limits = graph.ticks(seeds.times)
        if cutoff is not None:
            limits = np.minimum(limits, graph.ticks([cutoff])[0])
        predicted, trial = _trial(self, seeds, _Ask(cutoff, request, alone), limits, self.times)
        used = _used(self, seeds, cutoff, limits, alone)
        self.found.append(_certificate(self, seeds, limits, used, trial))
        return predicted


def certify(run: Run, *, times: int = MOST_TIMES) -> CertifyingRun:
    """A copy of a run that certifies its predictions.

    Args:
        run: any run.
        times: the most distinct times at which the trial is run, evenly spread from the first to
            the last; 0 for all. At each the label history is computed three times.

    Raises:
        UsageError: `times` is less than 0.

    >>> certified = relfrog.certify(relfrog.load_run("runs/churn"))  # doctest: +SKIP
    >>> certified.predict()  # doctest: +SKIP
    >>> certified.certificate.holds  # doctest: +SKIP
    True
    """
    if times < 0:
        raise UsageError(f"times must be 0 or more (got {times}).")
    return CertifyingRun(
        run.folder, run.about, run.config, run.device, opened=run.prepared.opened,
        fitted=run.model, times=times,
    )  # fmt: skip


# The trial.


class _Ask(NamedTuple):
    """How predictions are asked for; see `Run.predict_seeds`."""

    cutoff: pd.Timestamp | None
    request: ListRequest | None
    alone: bool


def _trial(
    run: Run, seeds: Seeds, ask: _Ask, limits: NDArray[np.int64], most: int
) -> tuple[Any, dict[str, Any]]:
    """Predict, and check that predictions are identical for every altered future."""
    ticks = np.unique(limits)
    tried = ticks
    if 0 < most < len(ticks):
        # From the last time on, as it has the longest past.
        tried = ticks[np.linspace(len(ticks) - 1, 0, most).astype(int)]
    outcome: dict[str, dict[str, Any]] = {
        way: {"rows": 0, "identical": True, "different": 0} for way in WAYS
    }
    parts: list[tuple[NDArray[np.int64], Any]] = []
    readings = _readings(run)
    seeds_tried = 0
    for tick in ticks:
        at = np.flatnonzero(limits == tick)
        some = Seeds(seeds.rows[at], seeds.times.iloc[at].reset_index(drop=True))
        made = _again(run.model, some, ask)
        parts.append((at, made))
        if tick not in tried:
            continue
        seeds_tried += len(at)
        for way, found in outcome.items():
            for by_window in (False, True):
                again, rows = _on_another(run, readings, way, int(tick), some, by_window, ask)
                different = 0 if again is None else _different(made, again)
                if not different or not _remembers(run.model):
                    break
                # Label SQL may use other times than those of the rows it reads. Then each past
                # label has to be computed from the rows up to the end of its window.
                found["labels"] = "from rows up to the end of their windows"
            found["rows"] += rows
            found["different"] += different
            found["identical"] = found["identical"] and not different
    if not parts:
        return _again(run.model, seeds, ask), _sum_up(outcome, 0, 0, 0)
    whole = np.empty((len(seeds), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for at, made in parts:
        whole[at] = made
    return whole, _sum_up(outcome, len(ticks), len(tried), seeds_tried)


def _sum_up(
    outcome: dict[str, dict[str, Any]], times: int, tried: int, seeds: int
) -> dict[str, Any]:
    return {
        **outcome, "times": times, "times_tried": tried, "seeds_tried": seeds,
        "identical": all(found["identical"] for found in outcome.values()),
    }  # fmt: skip


def _readings(run: Run) -> Readings:
    """What is read of the database to alter it; its times are those of the graph."""
    graph = run.prepared.graph
    times = {name: graph.time(name) for name in run.prepared.opened.db.table_dict
             if name in graph.num_rows}  # fmt: skip
    return Readings(graph.unit, {name: found for name, found in times.items() if found is not None})


def _on_another(
    run: Run, readings: Readings, way: str, tick: int, seeds: Seeds, by_window: bool, ask: _Ask
) -> tuple[Any, int]:
    """Predict on a database with an altered future; also return the number of altered rows.

    If there are none, it is the same database, and nothing is predicted.
    """
    ready = run.prepared
    time = pd.Timestamp(np.array([tick], np.int64).view(f"datetime64[{readings.unit}]")[0])
    for gentle in (False, True):
        asked = {ready.task.entity_table: seeds.rows}
        tamper = Tampering(way, tick, readings, asked, gentle=gentle)
        altered = AlteredTask(ready.opened, tamper, time if by_window else None)
        if not altered.is_changed and not _remembers(run.model):
            return None, 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings were given for the original database
            try:
                made = _again(Run.on(run, altered).model, seeds, ask)
            except TaskError:
                if gentle:
                    raise
                continue  # the label SQL fails on values that never occurred
        return made, sum(tamper.rows.values())
    raise AssertionError("unreachable")


def _remembers(model: Model) -> bool:
    """Whether the model uses the label history."""
    return any(one.prepared.history is not None for one in (model.members or {"": model}).values())


def _again(model: Model, seeds: Seeds, ask: _Ask) -> Any:
    """Predict on the model's database, with the request adapted to its rows."""
    request = ask.request
    if request is not None:
        ready = next(iter(model.members.values()), model).prepared
        task, graph, table = ready.task, ready.graph, ready.task.dst_entity_table
        allowed = request.allowed
        if allowed is not None:
            fitting = np.zeros(graph.num_rows[table], bool)
            size = min(len(fitting), len(allowed))
            fitting[:size] = allowed[:size]
            allowed = fitting
        known = request.exclude
        if known is not None:
            known = joined_before(graph, task.entity_table, table, seeds.rows, seeds.times)
        request = replace(request, allowed=allowed, exclude=known)
    if ask.alone:
        return np.asarray(model.predict_alone(seeds, request))
    return np.asarray(model.predict(seeds, ask.cutoff, request))


def _different(one: NDArray[Any], other: NDArray[Any]) -> int:
    """The number of seeds whose predictions differ in any bit."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return len(one)
    if one.dtype == object:
        return sum(a != b for a, b in zip(one.tolist(), other.tolist(), strict=True))
    if not one.size:
        return 0
    sides = [np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1) for x in (one, other)]
    return int((sides[0] != sides[1]).any(1).sum())


# Rows used.


def _used(
    run: Run, seeds: Seeds, cutoff: pd.Timestamp | None, limits: NDArray[np.int64], alone: bool
) -> pd.DataFrame:
    """Rows used, per seed and table."""
    ready = run.prepared
    if not isinstance(run.model, NetworkModel):
        return rows_visible(ready.graph, list(ready.graph.num_rows), limits)
    target_table = ready.target_table
    plans = ready.loader(seeds, cutoff=cutoff, alone=alone)
    parts = [rows_behind(ready.graph, plan, target_table) for plan in plans]
    if target_table is not None:
        # Popularity counts all rows that refer to a target.
        counted = {
            target_table,
            *(k.table for k in ready.graph.foreign_keys if k.parent == target_table),
        }
        parts = [part[~part["table"].isin(counted)] for part in parts]
        parts.append(rows_visible(ready.graph, sorted(counted), limits))
    nothing = rows_visible(ready.graph, list(ready.graph.num_rows), limits[:0])
    found = pd.concat([nothing, *parts], ignore_index=True)
    return found.sort_values(["seed", "table"], kind="stable", ignore_index=True)


def _certificate(
    run: Run, seeds: Seeds, limits: NDArray[np.int64], used: pd.DataFrame, trial: dict[str, Any]
) -> Certificate:
    ready = run.prepared
    graph, task = ready.graph, ready.task
    who, newest = used["seed"].to_numpy(np.int64), used["newest"].to_numpy(np.int64)
    late = int((newest > limits[who]).sum())
    primary = ready.dataset.manifest.tables[task.entity_table].pkey
    keys = key_frame(run.prepared.dataset.dataset_dir, task.entity_table, primary, seeds.rows[who])
    taken = {str(name).lower() for name in keys}
    frame = keys.reset_index(drop=True)
    moments = newest.copy()
    moments[newest == MISSING] = np.iinfo(np.int64).min  # NaT
    columns = {
        "time": seeds.times.to_numpy()[who], "table": used["table"].to_numpy(),
        "newest_time": moments.view(f"datetime64[{graph.unit}]"),
        "rows": used["rows"].to_numpy(np.int64),
    }  # fmt: skip
    named = {name: free_name(name, taken) for name in columns}
    for name, values in columns.items():
        frame[named[name]] = values
    tables = {}
    for name in graph.num_rows:
        own = used["table"].to_numpy() == name
        stamp = moments[own].max(initial=np.iinfo(np.int64).min)
        tables[name] = {
            "time_column": ready.db.table_dict[name].time_col,
            "newest_time": _stamp(stamp, graph.unit),
            "entities": int(own.sum()),
            "most_rows": int(used["rows"].to_numpy()[own].max(initial=0)),
        }
    about = {
        "format": FORMAT, "relfrog": __version__, "run": str(run.folder.resolve()),
        "dataset": run.about["dataset"], "task": run.about["task"], "model": run.config.model,
        "files": {
            str(p.relative_to(run.folder)): sha256(p) for p in sorted(run.folder.rglob("model.*"))
        },
        "predictions": len(seeds),
        "first_time": _stamp(limits.min(initial=np.iinfo(np.int64).max), graph.unit, len(limits)),
        "last_time": _stamp(limits.max(initial=np.iinfo(np.int64).min), graph.unit, len(limits)),
        "rows_are": _meaning(run), "tables": tables,
        "always_visible": always_visible(graph, task.entity_table),
        "visible_too_early": visible_too_early(ready.db),
        "later_rows_used": late, "trial": trial, "holds": not late and trial["identical"],
    }  # fmt: skip
    return Certificate(about, frame)


def _meaning(run: Run) -> str:
    if not isinstance(run.model, NetworkModel):
        return "all rows that the entity may see at its time"
    if run.prepared.target_table is not None:
        return (
            "rows from which a change could reach the scores; of the targets and the tables that "
            "name them, all that exist at the time"
        )
    return "rows from which a change could reach the prediction"


def _stamp(tick: Any, unit: str, count: int = 1) -> str | None:
    if not count or int(tick) == np.iinfo(np.int64).min:
        return None
    return str(np.array([tick], np.int64).view(f"datetime64[{unit}]")[0])


def save_beside(certificate: Certificate, out: str, table: str | None, folder: Path) -> Path:
    """Write a certificate next to the predictions, or to the run folder for a database table."""
    if table is None:
        path = Path(out).expanduser()
        return certificate.save(path, file=path.name, sha256=sha256(path))
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in table)
    return certificate.save(folder / f"predictions-{safe}", table=table)
