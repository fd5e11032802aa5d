"""Certificates: the rows used by predictions, and a proof that later rows do not affect them.

A certificate states for every prediction how many rows of each table it used and the time of the
newest; and the outcome of a trial in which all rows after its time, and all rows that name them,
were altered, removed and invented, and the prediction was repeated: it must be bit-for-bit
identical. Tables that are always visible cannot be tried like that; the certificate names them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog._version import __version__
from relfrog.analysis.reservations import always_visible, sentence, visible_too_early
from relfrog.analysis.rows_used import rows_behind, rows_visible
from relfrog.analysis.trial import Ask, try_futures
from relfrog.datasets.entities import key_frame
from relfrog.datasets.late_columns import find_late_columns
from relfrog.errors import OutputError, UsageError
from relfrog.graph.popularity import ListRequest
from relfrog.models.network_model import NetworkModel
from relfrog.runs.run import Run
from relfrog.support.text import free_name
from relfrog.support.times import MISSING
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
        predicted, trial = try_futures(self, seeds, Ask(cutoff, request, alone), limits, self.times)
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
        "time": seeds.times[who], "table": used["table"].to_numpy(),
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
        "written_later": [column.place for column in find_late_columns(ready.db)],
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
        from relfrog.support.files import user_path

        path = user_path(out)
        return certificate.save(path, file=path.name, sha256=sha256(path))
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in table)
    return certificate.save(folder / f"predictions-{safe}", table=table)
