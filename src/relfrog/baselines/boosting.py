"""LightGBM: loading it, and its models as text files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relfrog.errors import RunError
from relfrog.runfiles import write_text

__all__ = ["boosted", "load_lightgbm", "read_booster", "write_booster"]


def load_lightgbm() -> Any:
    """The library.

    Raises:
        RunError: It cannot be loaded.
    """
    try:
        import lightgbm
    except (ImportError, OSError) as error:
        text = str(error).splitlines()[0]
        raise RunError(f"LightGBM cannot be loaded ({text}). pip install lightgbm") from None
    return lightgbm


def boosted(
    settings: dict[str, Any], data: Any, rounds: int, valid: list[Any], callbacks: list[Any]
) -> Any:
    """A model trained on LightGBM's datasets.

    Raises:
        RunError: LightGBM refuses.
    """
    lightgbm = load_lightgbm()
    try:
        return lightgbm.train(settings, data, rounds, valid, callbacks=callbacks)
    except lightgbm.basic.LightGBMError as error:
        raise RunError(f"LightGBM cannot learn from these labels: {error}") from None


def write_booster(path: Path, model: Any) -> None:
    """Write a model up to its best round, as LightGBM's text."""
    write_text(path, model.model_to_string(num_iteration=model.best_iteration))


def read_booster(path: Path) -> Any:
    """Read a model.

    Raises:
        RunError: The file is missing or damaged.
    """
    lightgbm = load_lightgbm()
    try:
        return lightgbm.Booster(model_str=path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, lightgbm.basic.LightGBMError) as error:
        raise RunError(f"{path} is damaged ({error}). Train again.") from None
