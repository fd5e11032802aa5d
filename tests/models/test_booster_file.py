"""Models of LightGBM that may be opened."""

from __future__ import annotations

import numpy as np

from relfrog.models.booster_file import checked_model, load_lightgbm


def test_a_split_between_missing_and_present_values_is_sound() -> None:
    """LightGBM writes an infinite threshold for it."""
    random = np.random.default_rng(0)
    missing = random.random(2000) < 0.5
    values = np.where(missing, np.nan, 1.0 + random.integers(3, size=2000))
    lightgbm = load_lightgbm()
    data = lightgbm.Dataset(values[:, None], missing.astype(float))
    settings = {"objective": "binary", "verbose": -1, "num_threads": 1}
    text = lightgbm.train(settings, data, num_boost_round=3).model_to_string()
    assert "inf" in text.split("threshold=")[1].splitlines()[0]
    assert checked_model(text, 1) == text
