"""A run and the dataset as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from relfrog import load_run, train
from relfrog.errors import RunError
from small_store import copied


@pytest.mark.parametrize("now", [None, "at"])
def test_a_run_names_the_table_whose_time_column_changed(
    now: str | None, store: Path, tmp_path: Path
) -> None:
    folder = copied(store, tmp_path)
    run = train(folder, "buys", tmp_path / "run", settings={"model": "mean"})
    path = folder / "manifest.yaml"
    manifest = yaml.safe_load(path.read_text())
    manifest["tables"]["reviews"]["time_col"] = now
    path.write_text(yaml.safe_dump(manifest))
    if now is not None:
        import pandas as pd

        table = folder / "db" / "reviews.parquet"
        pd.read_parquet(table).rename(columns={"written": now}).to_parquet(table)
    with pytest.raises(
        RunError, match=f"table reviews was written in training and is {now or 'n'}"
    ):
        load_run(run.folder).evaluate("test")
