"""Label SQL without a sandbox: DuckDB in this process, on the tables as they are."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pandas as pd
from relbench.base import Database


def plain_sql(
    sql: str, db: Database, timestamps: Sequence[pd.Timestamp], timedelta: pd.Timedelta
) -> pd.DataFrame:
    """What `relfrog.datasets.label_sql.run_sql` gives, for SQL that can be trusted."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("timestamps", pd.DataFrame({"timestamp": timestamps}))
        for name, table in db.table_dict.items():
            connection.register(name, table.df)
        frame: pd.DataFrame = connection.execute(sql.replace("{timedelta}", str(timedelta))).df()
        return frame
