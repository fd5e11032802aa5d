"""Turn a source into a dataset folder, with the evidence for every decision.

How the data flow, in order:

- `staging`: the source's rows are copied once into a temporary DuckDB database.
- `column_types`, `key_checks`, `key_proposals`, `time_proposals`: queries of that database infer
  types, check declared keys, and propose missing keys, time columns and split times.
- `mapping`: what was decided for each table, and the user's corrections.
- `key_plan`, `plan`: declarations, proposals and corrections become one `ImportPlan`.
- `inherited`: rows without a time of their own are known from the rows that they name.
- `layout`, `writer`: the tables are written as Parquet, keys replaced by row numbers.
- `result`: the manifest, the mapping and a record of the import are written beside them.

`database` runs these steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.importing.database import import_database, plan_import

__all__ = ["import_database", "plan_import"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "import_database": "relfrog.importing.database",
        "plan_import": "relfrog.importing.database",
    },
)
