"""A run and the dataset as it is now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from relfrog import load_run
from relfrog.errors import RelFrogError
from small_store import copied, fit


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"epochs": 1}, {"model": "lightgbm", "trials": 1}], ids=str)
def test_a_run_names_the_table_whose_time_column_changed(
    given: dict[str, Any], store: Path, tmp_path: Path
) -> None:
    folder = copied(store, tmp_path)
    run = fit(folder, tmp_path / "run", **given)
    path = folder / "manifest.yaml"
    manifest = yaml.safe_load(path.read_text())
    table = folder / "db" / "reviews.parquet"
    frame = pd.read_parquet(table)
    for now in (None, "at"):
        manifest["tables"]["reviews"]["time_col"] = now
        path.write_text(yaml.safe_dump(manifest))
        frame.rename(columns={"written": now or "written"}).to_parquet(table)
        with pytest.raises(RelFrogError, match=r"dated otherwise.*reviews \(by (no time|at), then"):
            load_run(run.folder).evaluate("test")
