"""A run and the dataset as it is now."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from relfrog import load_run
from relfrog.datasets.dataset import is_at_hand
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


@pytest.mark.slow
def test_a_run_makes_nobody_ask_a_host_that_its_author_chose(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it asked"))
    run = fit(store, tmp_path / "run", epochs=1)
    file = run.folder / "run.json"
    kept = file.read_text()
    for name in ("somebody/shop", "somebody/shop/sub", "somebody//shop", "b a d/n?ame"):
        file.write_text(json.dumps({**json.loads(kept), "dataset": name}))
        with pytest.raises(RelFrogError, match="is not on this machine"):
            load_run(run.folder)
    assert is_at_hand(str(store))
    assert is_at_hand("rel-f1")  # RelBench's own
    assert is_at_hand("/gone/away")  # which is said where it is opened
