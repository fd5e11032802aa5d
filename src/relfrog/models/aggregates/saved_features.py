"""Features as a run folder describes them, for the database as it is now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relfrog.errors import RunError
from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.encoded_columns import EncodedColumn
from relfrog.store.file_table import column_names
from relfrog.training.prepared import Prepared

__all__ = ["SavedFeatures"]


class SavedFeatures:
    """What `FeatureMaker.to_json` saved; newer tables and columns are ignored.

    Attributes:
        keys: foreign keys.
        sizes: number of rows before the validation time, per table.
        encodings: encoded columns per table.

    Args:
        saved: the result of `to_json`.
        prepared: the database now.
        history: the present name of the label history's table, which depends on other tables.
        outputs: the number of outputs of a label.

    Raises:
        RunError: It is damaged, or a column or foreign key is no longer in the database.
    """

    def __init__(
        self, saved: dict[str, Any], prepared: Prepared, history: str, outputs: int
    ) -> None:
        self._saved, self._prepared, self._history = saved, prepared, history
        try:
            was = str(saved["history"])
            wanted = [ForeignKey(*map(str, key)) for key in saved["keys"]]
            encodings = [EncodedColumn.from_json(entry) for entry in saved["cells"]]
            self.sizes = {str(table): int(rows) for table, rows in saved["sizes"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"the features are damaged ({error}). Train again.") from None
        known = set(prepared.graph.foreign_keys)
        self.keys = tuple(
            replace(key, table=history) if key.table == was else key for key in wanted
        )
        for key in self.keys:
            if key not in known:
                raise RunError(f"the foreign key {key} is no longer there: train again.")
        self.encodings: dict[str, list[EncodedColumn]] = {}
        for encoded in encodings:
            table = history if encoded.table == was else encoded.table
            there = prepared.db.table_dict.get(table)
            if there is None or encoded.column not in column_names(there):
                raise RunError(f"{table}.{encoded.column} is no longer there: train again.")
            if (encoded.kind == "label") != (table == history) or encoded.part >= outputs:
                raise RunError(f"the features are damaged ({table}.{encoded.name}). Train again.")
            self.encodings.setdefault(table, []).append(replace(encoded, table=table))

    def check_times(self, timed: dict[str, str]) -> dict[str, str]:
        """The time column that each table had, if it still has it; an empty table needs none.

        Args:
            timed: the time columns now.

        Raises:
            RunError: A table is dated otherwise.
        """
        if not isinstance(was := self._saved.get("timed"), dict):
            return timed  # from before it was kept
        renamed = {str(self._saved["history"]): self._history}
        found = {renamed.get(str(name), str(name)): str(time) for name, time in was.items()}
        rows = self._prepared.graph.num_rows
        changed = [
            f"{name} (by {timed.get(name, 'no time')}, then by {found.get(name, 'no time')})"
            for name in self.sizes
            if timed.get(name) != found.get(name) and rows.get(name)
        ]
        if changed:
            raise RunError(
                f"dated otherwise than when it was trained: {', '.join(changed)}. Undo that "
                "(relfrog import --time), or train again."
            )
        return found
