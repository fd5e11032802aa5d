"""Run folders: everything a run is, in plain files.

::

    run.json             what was trained on what: dataset, task, labels, schema, versions, seconds
    config.yaml          the settings, all of them
    database.json        what it was trained on: tables, keys, times, the task, a fingerprint
    columns.json         types and statistics of the columns, from rows before the validation cut
    columns.safetensors  their arrays
    model.safetensors    the weights with the best validation metric
    roles.json           the gate of each route
    history.jsonl        one line per epoch
    metrics.json         scores of the saved weights, by split and regime
    baselines.json       scores of quick baselines beside it, by model, split and regime
    unseen.json          categories of the database that the model has not seen, to name newer ones
    report.html          what was learned, for people
    shown.json           what the report computed from the data; with its arrays:
    shown.safetensors
    checkpoint.safetensors  where an interrupted run goes on; gone when it has ended
    checkpoint-before.safetensors  the one before it, should it be damaged

Models without a network have `baseline.json`, or `lightgbm.json` and LightGBM's text, in place of
weights; `auto` has `blend.json` and the run folders of its members under `members`.

Nothing in it is executed when it is opened: JSON, YAML (safe), safetensors and text alone.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from relfrog.errors import RunError

__all__ = [
    "FORMAT", "append_line", "clear_partials", "is_run", "load_tensors", "locked", "plain",
    "read_json", "save_tensors", "write_json", "write_text", "written",
]  # fmt: skip

FORMAT = 1


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Write a file that is complete or as it was: beside, then renamed, and on the disk by then."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a renaming last; not every system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def clear_partials(folder: Path) -> None:
    """Remove what a process that was killed was writing; the caller holds the lock."""
    for path in folder.rglob(".*.partial-*"):
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file that is complete or as it was."""
    with written(path) as file:
        file.write(text.encode())


def plain(data: Any) -> Any:
    """The same for JSON, which has no NaN: what is not a number is null."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def write_json(path: Path, data: object) -> None:
    """Write JSON that is complete or as it was."""
    write_text(path, json.dumps(plain(data), indent=1, ensure_ascii=False, default=str) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        RunError: It is missing or no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({error}). Train again.") from None


def save_tensors(path: Path, tensors: dict[str, Any], about: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors, complete or as it was."""
    from safetensors.torch import save

    content = save({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, about)
    with written(path) as file:
        file.write(content)


def load_tensors(path: Path) -> dict[str, Any]:
    """Read safetensors.

    Raises:
        RunError: The file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be read ({error}). Train again.") from None
    return tensors


def append_line(path: Path, data: object) -> None:
    """Add one line of JSON to a file."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(plain(data), ensure_ascii=False, default=str) + "\n")
        file.flush()
        os.fsync(file.fileno())


def is_run(folder: Path) -> bool:
    """Whether a folder is a run folder."""
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(about, dict) and "relfrog" in about


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second process out of a run folder.

    Raises:
        RunError: There is one in it already.
    """
    try:
        import fcntl
    except ImportError:  # not there on Windows
        yield
        return
    with open(folder / ".lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"{folder} is in use: another process is training there.") from None
        yield
