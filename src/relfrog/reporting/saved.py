"""What a report computed from the data, kept in the run folder: `shown.json`, `shown.safetensors`.

With it the report can be made again from the run folder alone: elsewhere, and when the data are
gone or have changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from relfrog.analysis.explained import Explanation
from relfrog.analysis.fd_space import Differences
from relfrog.analysis.importance import Importance
from relfrog.errors import RunError
from relfrog.models.run_folder import MEMBERS
from relfrog.reporting.material import Answers, Material
from relfrog.support.files import write_json
from relfrog.support.forms import read_json
from relfrog.support.lists import Lists, as_labels
from relfrog.support.tensors import load_tensors, save_tensors
from relfrog.support.times import PER_SECOND, as_ticks
from relfrog.training.seeds import Seeds

__all__ = ["PARTS", "keep", "recall"]

#: Of what is kept; another one is computed anew.
FORMAT = 3
#: The parts that come from the data.
PARTS = ("answers", "importance", "explanations", "differences")
#: Files that decide what a run predicts.
MODEL = (
    "config.yaml", "columns.json", "model.safetensors", "baseline.json", "lightgbm.json",
    "blend.json", "postprocessing.json",
)  # fmt: skip


def keep(found: Material, deep: bool) -> None:
    """Write what was computed into the run folder.

    Raises:
        OSError: It cannot be written to.
    """
    folder = found.run.folder
    answers = None
    tensors: dict[str, torch.Tensor] = {}
    if found.answers is not None:
        arrays = _arrays(found.answers)
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        answers = {
            "keys": found.answers.keys, "targets": found.answers.targets,
            "unit": as_ticks(found.answers.seeds.times)[1],
        }  # fmt: skip
    # The tensors first: what names them is complete when it is there.
    (folder / "shown.json").unlink(missing_ok=True)
    save_tensors(folder / "shown.safetensors", tensors)
    differences = found.differences
    write_json(
        folder / "shown.json",
        {
            "format": FORMAT,
            "model": _model(folder),
            "deep": deep,
            "why": {name: found.why[name] for name in PARTS if name in found.why},
            "answers": answers,
            "importance": found.importance and dataclasses.asdict(found.importance),
            "explanations": [dataclasses.asdict(one) for one in found.explanations],
            "differences": differences
            and {
                **dataclasses.asdict(differences),
                "points": differences.points.tolist(), "matched": differences.matched.tolist(),
            },
        },
    )  # fmt: skip


def recall(found: Material, deep: bool) -> bool:
    """Read what was kept, if it is of this model and as thorough as asked for.

    Returns:
        Whether it was there. If not, or if it is damaged, nothing has changed.
    """
    folder = found.run.folder
    try:
        content = read_json(folder / "shown.json", dict[str, Any])
        if content["format"] != FORMAT or content["model"] != _model(folder):
            return False
        if deep and not content["deep"]:
            return False
        parts = {
            "answers": content["answers"]
            and _answers(content["answers"], load_tensors(folder / "shown.safetensors")),
            "importance": content["importance"] and _importance(content["importance"]),
            "explanations": [_explanation(one) for one in content["explanations"]],
            "differences": content["differences"] and _differences(content["differences"]),
        }
        why = {name: str(content["why"][name]) for name in PARTS if name in content["why"]}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, RunError,
            msgspec.ValidationError):  # fmt: skip
        return False
    if any(not parts[name] and name not in why for name in PARTS):
        return False
    for name, part in parts.items():
        setattr(found, name, part)
    found.why = {name: text for name, text in found.why.items() if name not in PARTS} | why
    found.kept = True
    return True


def _model(folder: Path) -> str:
    """A name for exactly this model, of which `lightgbm.json` has the checksums of its trees."""
    digest = hashlib.blake2b(digest_size=12)
    members = sorted(folder.glob(f"{MEMBERS}/*"))
    for path in (part / name for part in (folder, *members) for name in MODEL):
        if path.is_file():
            name = path.relative_to(folder)
            digest.update(f"{name}:{path.stat().st_size}:".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _arrays(answers: Answers) -> dict[str, NDArray[Any]]:
    """Answers as plain arrays; labels that are lists one after the other."""
    truth = as_labels(answers.truth)
    arrays = {
        "rows": np.asarray(answers.seeds.rows, np.int64),
        "times": as_ticks(answers.seeds.times)[0],
        "past": np.asarray(answers.past, np.int64),
        "predicted": np.ascontiguousarray(answers.predicted),
    }
    if answers.raw is not None:
        arrays["raw"] = np.ascontiguousarray(answers.raw)
    if isinstance(truth, Lists):
        return {**arrays, "truth": truth.values.copy(), "truth_offsets": truth.begin}
    return {**arrays, "truth": np.ascontiguousarray(truth)}


def _answers(content: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Answers:
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    truth: Any = arrays["truth"]
    if "truth_offsets" in arrays:
        begin = arrays["truth_offsets"]
        if not len(begin) or begin[0] or (np.diff(begin) < 0).any() or begin[-1] != len(truth):
            raise ValueError("lists of labels that do not follow each other")
        truth = Lists(begin, truth)
    # Not all in nanoseconds, which end in the year 2262.
    unit = content["unit"]
    if unit not in PER_SECOND:
        raise ValueError("times of an odd unit")
    times = arrays["times"].view(f"datetime64[{unit}]")
    keys = [str(key) for key in content["keys"]]
    sizes = {len(part) for part in (arrays["rows"], times, truth, arrays["predicted"],
                                    arrays["past"], keys)}  # fmt: skip
    raw = arrays.get("raw")
    if len(sizes) != 1 or (raw is not None and raw.shape != arrays["predicted"].shape):
        raise ValueError("answers of different lengths")
    targets = {int(row): str(name) for row, name in content["targets"].items()}
    return Answers(
        Seeds(arrays["rows"], times), truth, arrays["predicted"], arrays["past"], keys, targets,
        raw,
    )  # fmt: skip


def _importance(content: dict[str, Any]) -> Importance:
    for entry in (*content["tables"], *content["columns"]):
        for name in ("hidden", "shuffled"):
            entry[name] = entry[name] and [*map(_number, entry[name])]
    return msgspec.convert({**content, "score": _number(content["score"])}, Importance)


def _explanation(content: dict[str, Any]) -> Explanation:
    for row in (*content["rows"], *content["features"]):
        row["effect"] = _number(row["effect"])
    prediction = _number(content["prediction"])
    return msgspec.convert({**content, "prediction": prediction}, Explanation, dec_hook=_time)


def _differences(content: dict[str, Any]) -> Differences:
    points = np.array(content["points"], float).reshape(-1, 2)
    if not len(points) == len(content["key"]) == len(content["matched"]):
        raise ValueError("points of different lengths")
    for name in ("separation", "scored"):
        content[name] = {key: _number(value) for key, value in content[name].items()}
    numbers = {name: _number(content[name]) for name in ("silhouette", "explained")}
    arrays = {"points": points, "matched": np.array(content["matched"], bool)}
    return msgspec.convert({**content, **numbers, **arrays}, Differences)


def _number(value: Any) -> Any:
    """JSON has no NaN."""
    return float("nan") if value is None else value


def _time(kind: Any, value: Any) -> pd.Timestamp:
    return pd.Timestamp(value)
