"""Checkpoints: where an interrupted run goes on, written so that one of two can always be read.

A checkpoint is one file of safetensors with all tensors and, beside them, where training is and a
SHA-256 of everything. The one before it stays until the next: if the last cannot be read, because
a disk or a machine failed, it is named and the one before is used, and the run ends the same.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor

from relfrog.errors import RelFrogWarning, RunError
from relfrog.support.files import atomic_write, jsonable
from relfrog.support.tensors import read_tensors, save_tensors
from relfrog.training.weights import named_part

__all__ = ["BEFORE", "LAST", "TrainerState", "capture", "clear", "load", "parse_progress",
           "progress_text", "restore", "save"]  # fmt: skip

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
LAST, BEFORE = "checkpoint.safetensors", "checkpoint-before.safetensors"


@dataclass
class TrainerState:
    """Where training is; with the weights and the random state this is all there is.

    Attributes:
        epoch: the present one.
        step: steps of it that are done.
        steps: steps that are done at all.
        best: the best validation metric.
        best_epoch: where it was.
        waited: epochs since then.
        sums: seeds and sums of losses of the epoch.
        seconds: of the epoch.
        micro_batches: into how many a batch is split, because it did not fit into memory.
    """

    epoch: _Count = 0
    step: _Count = 0
    steps: _Count = 0
    best: float | None = None
    best_epoch: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)] = -1
    waited: _Count = 0
    sums: Annotated[list[float], msgspec.Meta(min_length=4, max_length=4)] = field(
        default_factory=lambda: [0.0, 0.0, 0.0, 0.0]
    )
    seconds: float = 0.0
    micro_batches: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)] = 1


def capture(trainer: Any) -> tuple[dict[str, Tensor], str]:
    """All that is needed to go on as if nothing had happened: tensors, and where training is."""
    tensors = {f"network.{k}": v for k, v in trainer.network.state_dict().items()}
    if trainer.average is not None:
        tensors |= {f"average.{k}": v for k, v in trainer.average.network.state_dict().items()}
    if trainer.dependencies is not None:
        tensors |= {f"fd.{k}": v for k, v in trainer.dependencies.state_dict().items()}
    for name, optimizer in trainer.optimizers().items():
        for number, state in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}.{number}.{k}": v for k, v in state.items()}
    tensors["random"] = torch.get_rng_state()
    if trainer.device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(trainer.device)
    tensors = {k: v.detach().contiguous().cpu() for k, v in tensors.items()}
    return tensors, progress_text(trainer)


def progress_text(trainer: Any) -> str:
    """Where training is, for `parse_progress`."""
    return json.dumps(jsonable(trainer.at.__dict__))


def save(trainer: Any) -> None:
    """Write what `capture` gives."""
    tensors, progress = capture(trainer)
    path = trainer.folder / LAST
    if path.exists():
        path.replace(trainer.folder / BEFORE)
    save_tensors(path, tensors, {"progress": progress})


def load(trainer: Any) -> None:
    """Take up where `save` left off; from the beginning if it never did.

    Raises:
        RunError: No checkpoint can be read, or it is of another model.

    Warns:
        RelFrogWarning: The last one is damaged, and the one before it is used.
    """
    found, wrong = None, []
    for name in (LAST, BEFORE):
        path = trainer.folder / name
        if not path.exists():
            continue
        try:
            found = (path, *_read(path))
            break
        except (OSError, ValueError, KeyError, TypeError) as error:
            wrong.append(f"{path} is damaged ({' '.join(str(error).split())[:200]})")
    if wrong and found is None:
        raise RunError(
            f"{'; '.join(wrong)}: no checkpoint is left to go on from. Train anew with --overwrite."
        )
    if wrong and found is not None:
        text = f"{wrong[0]}. The one before it is used, {found[0].name}; some steps are done again."
        warnings.warn(text, RelFrogWarning, stacklevel=2)
    if found is not None:
        restore(trainer, *found)
    _cut_history(trainer)


def clear(folder: Path) -> None:
    """Remove what only an interrupted run needs."""
    for name in (LAST, BEFORE):
        (folder / name).unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Tensor], TrainerState]:
    """Tensors and progress of a checkpoint.

    Raises:
        OSError, ValueError, KeyError, TypeError: It is damaged.
    """
    tensors, about = read_tensors(path)
    if "progress" not in about or "random" not in tensors:
        raise ValueError("it is no checkpoint")
    return tensors, parse_progress(about["progress"])


def parse_progress(text: str) -> TrainerState:
    """Where training is, from `progress_text`.

    Raises:
        ValueError: It says something else.
    """
    try:
        return msgspec.json.decode(text, type=TrainerState)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def restore(
    trainer: Any, where: object, tensors: dict[str, Tensor], progress: TrainerState
) -> None:
    """Bring a trainer into the state that was captured.

    Args:
        trainer: the trainer.
        where: what the state comes from, for the error.
        tensors: as `capture` gives them.
        progress: where training is.

    Raises:
        RunError: It is of another model.
    """
    try:
        trainer.at = progress
        trainer.network.load_state_dict(named_part(tensors, "network"))
        if trainer.average is not None:
            trainer.average.network.load_state_dict(named_part(tensors, "average"))
        if trainer.dependencies is not None:
            trainer.dependencies.load_state_dict(named_part(tensors, "fd"))
        for name, optimizer in trainer.optimizers().items():
            state: dict[int, dict[str, Tensor]] = {}
            for key, value in named_part(tensors, name).items():
                number, _, entry = key.partition(".")
                state.setdefault(int(number), {})[entry] = value
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
        torch.set_rng_state(tensors["random"])
        if trainer.device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], trainer.device)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        text = " ".join(str(error).split())[:300]
        raise RunError(f"{where} does not fit this run ({text}). Train again.") from None


def _cut_history(trainer: Any) -> None:
    """Drop lines of epochs that will be run again."""
    path = trainer.folder / "history.jsonl"
    if path.exists():
        if not path.is_file():
            raise RunError(f"{path} is no file. Train anew with --overwrite.")
        lines = path.read_bytes().splitlines(keepends=True)
        with atomic_write(path) as file:  # of what is torn or damaged, whoever reads it says so
            file.writelines(lines[: trainer.at.epoch])
