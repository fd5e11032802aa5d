"""Models of LightGBM in files: what it writes can be read, and says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from relfrog.models.booster_file import read_boosters, write_boosters

OBJECTIVES: dict[str, dict[str, Any]] = {
    "binary": {}, "multiclass": {"num_class": 3}, "regression": {}, "poisson": {},
    "tweedie": {}, "quantile": {"alpha": 0.8}, "huber": {}, "regression_l1": {},
}  # fmt: skip


def features(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Features of all kinds: numbers, gaps, nothing but gaps, infinities, constants, codes."""
    x = rng.normal(size=(rows, 7))
    x[rng.random(rows) < 0.5, 0] = np.nan
    x[:, 1] = np.where(rng.random(rows) < 0.5, np.nan, 1.0)  # known or not, and nothing else
    x[:, 2] = np.where(rng.random(rows) < 0.1, np.inf, x[:, 2])
    x[:, 3] = np.where(rng.random(rows) < 0.1, -np.inf, x[:, 3])
    x[:, 4] = 5.0
    x[:, 5] = rng.integers(0, 9, rows)
    x[:, 6] = np.where(x[:, 6] > 0, 1e300, x[:, 6])
    return x


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(3))
def test_what_lightgbm_writes_can_be_read(objective: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    x = features(rng, 400)
    # Labels depend on whether there is a value: trees ask for that.
    score = 2.0 * np.isnan(x[:, 0]) + np.isnan(x[:, 1]) + (x[:, 5] > 4) + rng.random(400)
    y = np.digitize(score, [1, 2]) if objective == "multiclass" else score
    y = (score > 2).astype(int) if objective == "binary" else y
    given = {"objective": objective, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 5}
    model = lightgbm.train(
        {**given, **OBJECTIVES[objective]},
        lightgbm.Dataset(x, y, categorical_feature=[5], params={"verbose": -1}),
        20,
    )
    model.best_iteration = 20
    sums = write_boosters(tmp_path, {"model.txt": model})
    if objective == "regression":
        assert "inf" in (tmp_path / "model.txt").read_text().split("threshold=", 1)[1]
    read = read_boosters(tmp_path, sums, x.shape[1])["model.txt"]
    assert np.array_equal(read.predict(x), model.predict(x))
