"""Tables whose columns are read when somebody asks for them."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from relfrog.support.relbench import Table

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ColumnTable"]


class ColumnTable(Table):
    """RelBench's `Table` to whoever wants a frame; but a column can be read alone."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The names of the columns."""

    @abstractmethod
    def column(self, name: str) -> pd.Series:
        """The values of a column, as `df` has them."""

    @cached_property
    def df(self) -> pd.DataFrame:
        """The whole table as a frame, for whoever cannot do with less."""
        return pd.DataFrame({name: self.column(name) for name in self.columns})

    @cached_property
    def _ends(self) -> tuple[Any, Any]:
        if self.time_col is None:
            raise ValueError("Table has no time column.")
        times = self.column(self.time_col)
        return times.min(), times.max()

    @property
    def min_timestamp(self) -> Any:
        """The first time."""
        return self._ends[0]

    @property
    def max_timestamp(self) -> Any:
        """The last time."""
        return self._ends[1]

    @abstractmethod
    def without(self, columns: set[str]) -> Self:
        """The same without some columns, and without the foreign keys among them."""

    @abstractmethod
    def retimed(self, keys: dict[str, str], time: str | None) -> Self:
        """The same rows with other foreign keys and another time column."""
