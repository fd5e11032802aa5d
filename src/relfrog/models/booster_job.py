"""Read LightGBM models and predict with them once; runs in a sandbox process.

Uses LightGBM's library without its Python package, which takes a second to import; see
`relfrog.support.sandbox`.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

__all__ = ["prepare", "run"]


def prepare() -> None:
    """Nothing: the library may start threads, so it is loaded after the fork."""


def run(library: str, files: list[str], features: int) -> None:
    """Read models, and let each predict for rows of zeros, of large numbers and of nothing.

    Args:
        library: The file of LightGBM's library.
        files: The models, in the current folder.
        features: The number of their features.

    Raises:
        ValueError: LightGBM refuses one of them.
    """
    lightgbm = ctypes.cdll.LoadLibrary(library)
    lightgbm.LGBM_GetLastError.restype = ctypes.c_char_p
    rows = [0.0, 1e300, -1e300, float("nan")]

    def call(name: str, *arguments: object) -> None:
        if getattr(lightgbm, name)(*arguments) != 0:
            raise ValueError(lightgbm.LGBM_GetLastError().decode(errors="replace"))

    for file in files:
        model, rounds = ctypes.c_void_p(), ctypes.c_int()
        text = Path(file).read_bytes()
        call("LGBM_BoosterLoadModelFromString", text, ctypes.byref(rounds), ctypes.byref(model))
        data = (ctypes.c_double * (len(rows) * features))(
            *(value for value in rows for _ in range(features))
        )
        size = ctypes.c_int64()
        shape = ctypes.c_int32(len(rows)), ctypes.c_int32(features)
        whole = (ctypes.c_int(0), ctypes.c_int(-1))
        call(
            "LGBM_BoosterCalcNumPredict", model, ctypes.c_int(len(rows)), ctypes.c_int(0), *whole,
            ctypes.byref(size),
        )  # fmt: skip
        found, length = (ctypes.c_double * size.value)(), ctypes.c_int64()
        call(
            "LGBM_BoosterPredictForMat", model, data, ctypes.c_int(1), *shape, ctypes.c_int(1),
            ctypes.c_int(0), *whole, b"num_threads=1", ctypes.byref(length), found,
        )  # fmt: skip
        call("LGBM_BoosterFree", model)
