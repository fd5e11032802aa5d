"""Files of LightGBM models, checked before LightGBM reads them.

LightGBM trusts its own text format: a node that does not exist, or a length that is wrong, ends in
a crash, in a hang, or in predictions from memory that holds something else. So every number that
LightGBM uses as a place is checked here; only what was checked is handed on; and it is read in a
sandbox process first, see `relfrog.support.sandbox`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.errors import RunError
from relfrog.support.files import write_text
from relfrog.support.sandbox import Ended, Failed, Limits, run_job, work_folder

__all__ = ["check_sums", "checked_model", "load_lightgbm", "read_boosters", "write_boosters"]

#: What reading models may take.
_LIMITS = Limits(seconds=120, memory=4 << 30, disk=1 << 20)

#: Largest sizes; what RelFrog trains is far below.
MOST_TREES, MOST_LEAVES, MOST_FEATURES, MOST_CLASSES = 100_000, 1_024, 1_000_000, 10_000
MOST_BYTES = 1 << 30
_HEADER = (
    "version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx",
    "objective", "feature_names", "feature_infos", "tree_sizes",
)  # fmt: skip
_TREE = (
    "num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type",
    "left_child", "right_child", "leaf_value", "leaf_weight", "leaf_count", "internal_value",
    "internal_weight", "internal_count",
)  # fmt: skip
_OBJECTIVE = re.compile(
    r"(binary|multiclass|regression|regression_l1|huber|quantile|poisson|tweedie|lambdarank)"
    r"( (sigmoid|num_class|alpha|tweedie_variance_power|sqrt)(:[0-9.e+-]+)?){0,4}"
)
_INFO = re.compile(r"none|\[[0-9a-z.e+-]+:[0-9a-z.e+-]+\]|-?[0-9]+(:-?[0-9]+)*")
_NAME = re.compile(r"lightgbm(-[0-9]{1,4}-[0-9]{1,4})?\.txt")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_WHOLES = re.compile(r"-?[0-9]{1,18}( -?[0-9]{1,18})*")
_NUMBER = r"(-?[0-9][0-9.e+-]{0,30}|-?inf|-?nan)"
_NUMBERS = re.compile(f"{_NUMBER}( {_NUMBER})*")
_END = "end of trees\n"


def load_lightgbm() -> Any:
    """Import LightGBM.

    Raises:
        RunError: It cannot be loaded.
    """
    try:
        import lightgbm
    except (ImportError, OSError) as error:
        text = str(error).splitlines()[0]
        raise RunError(f"LightGBM cannot be loaded ({text}). pip install lightgbm") from None
    return lightgbm


def write_boosters(folder: Path, models: Mapping[str, Any]) -> dict[str, str]:
    """Write models up to their best round, in LightGBM's text format.

    Returns:
        The checksum of each file, for `read_boosters`.
    """
    sums = {}
    for name, model in models.items():
        text = model.model_to_string(num_iteration=model.best_iteration)
        write_text(folder / name, text)
        sums[name] = _checksum(text)
    return sums


def trees_text(model: Any) -> str:
    """The trees of a model, in LightGBM's text format, the same before and after it is saved.

    What comes after them, the settings of the training, is not kept.
    """
    return str(model.model_to_string()).partition("end of trees")[0]


def read_boosters(folder: Path, sums: Mapping[str, str], features: int) -> dict[str, Any]:
    """Read models.

    Args:
        folder: The run folder.
        sums: The checksum of each file.
        features: The number of features that they must have.

    Raises:
        RunError: A file is missing or damaged, or is not what its checksum says.
    """
    lightgbm = load_lightgbm()
    texts = {}
    for name, checksum in sums.items():
        try:
            texts[name] = checked_model(_saved_text(folder / name, checksum), features)
        except (OSError, ValueError) as error:
            raise _damaged(folder / name, error) from None
    try:
        _rehearse(lightgbm.basic._LIB._name, texts, features)
        return {name: lightgbm.Booster(model_str=text) for name, text in texts.items()}
    except (Failed, Ended, lightgbm.basic.LightGBMError) as error:
        raise _damaged(folder, f"LightGBM cannot read its models: {error}") from None


def check_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """Compare files with their checksums alone, which takes neither LightGBM nor the data.

    Raises:
        RunError: A file is missing or damaged.
    """
    for name, checksum in sums.items():
        try:
            _need(_NAME.fullmatch(name) is not None, "the name of a file")
            _saved_text(folder / name, checksum)
        except (OSError, ValueError) as error:
            raise _damaged(folder / name, error) from None


def _saved_text(path: Path, checksum: str) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has {path.stat().st_size:,} bytes; at most {MOST_BYTES:,} are read")
    # Not as text, which would take other ends of lines for the same.
    text = path.read_bytes().decode()
    if _checksum(text) != checksum:
        raise ValueError("its checksum is wrong")
    return text


def _rehearse(library: str, texts: Mapping[str, str], features: int) -> None:
    """Read and use models where a crash takes nothing along."""
    with work_folder() as folder:
        files = [f"{number}.txt" for number in range(len(texts))]
        for file, text in zip(files, texts.values(), strict=True):
            (folder / file).write_text(text, encoding="ascii")
        run_job(
            "relfrog.models.booster_job", folder, _LIMITS,
            library=library, files=files, features=features,
        )  # fmt: skip


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _damaged(path: Path, why: object) -> RunError:
    return RunError(f"{path} is damaged ({why}). Train again.")


def checked_model(text: str, features: int) -> str:
    """The part of a file that LightGBM needs, if everything in it is sound.

    Args:
        text: The file.
        features: The number of features that the model must have.

    Raises:
        ValueError: What is wrong with it.
    """
    head, found, rest = text.partition("\n\n")
    entries = _entries(head.removeprefix("tree\n").split("\n"), _HEADER)
    _need(bool(found) and text.startswith("tree\n") and entries["version"] == "v4", "its header")
    _need(_whole(entries["max_feature_idx"]) == features - 1 < MOST_FEATURES, "its features")
    _need(entries["label_index"] == "0", "its label")
    classes, each = (_whole(entries[key]) for key in ("num_class", "num_tree_per_iteration"))
    _need(classes == each and 1 <= classes <= MOST_CLASSES, "its number of classes")
    _need(_OBJECTIVE.fullmatch(entries["objective"]) is not None, "its objective")
    names = " ".join(f"Column_{number}" for number in range(features))
    _need(entries["feature_names"] == names, "the names of its features")
    infos = entries["feature_infos"].split(" ")
    _need(len(infos) == features and all(map(_INFO.fullmatch, infos)), "the ranges of its features")
    sizes = _wholes(entries["tree_sizes"]).tolist()
    _need(len(sizes) <= MOST_TREES and len(sizes) % each == 0, "its number of trees")
    end = 0
    for number, size in enumerate(sizes):
        _need(0 < size <= len(rest) - end, f"the size of tree {number}")
        _check_tree(rest[end : end + size], number, features)
        end += size
    _need(rest.startswith(_END, end), "where its trees end")
    return f"{head}\n\n{rest[:end]}{_END}\npandas_categorical:null\n"


def _check_tree(text: str, number: int, features: int) -> None:
    lines = text.removesuffix("\n\n\n").split("\n")
    where = f"tree {number}"
    _need(text.endswith("\n\n\n") and lines[0] == f"Tree={number}", where)
    several = len(lines) > len(_TREE) + 3
    extra = ("cat_boundaries", "cat_threshold") if several else ()
    tree = _entries(lines[1:], (*_TREE, *extra, "is_linear", "shrinkage"))
    leaves, categorical = _whole(tree["num_leaves"]), _whole(tree["num_cat"])
    _need(1 <= leaves <= MOST_LEAVES and tree["is_linear"] == "0", where)
    _numbers(tree["shrinkage"], 1)
    inner = leaves - 1
    for name in ("split_gain", "internal_value", "internal_weight"):
        _numbers(tree[name], inner)
    _numbers(tree["leaf_weight"], leaves if inner else 0)
    _need(bool(np.isfinite(_numbers(tree["leaf_value"], leaves)).all()), f"a leaf of {where}")
    for name, count in (("leaf_count", leaves), ("internal_count", inner)):
        _need(len(_wholes(tree[name])) == count, where)
    _within(tree["split_feature"], inner, 0, features, f"a feature of {where}")
    kinds = _within(tree["decision_type"], inner, 0, 12, f"a decision of {where}")
    thresholds = _numbers(tree["threshold"], inner)
    # Infinity parts missing values from all others.
    _need(not np.isnan(thresholds).any(), f"a threshold of {where}")
    _check_shape(tree, inner, leaves, where)
    chosen = thresholds[(kinds & 1) == 1]
    _need((categorical > 0) == several and len(chosen) == categorical, f"the sets of {where}")
    if several:
        bounds, words = _wholes(tree["cat_boundaries"]), _wholes(tree["cat_threshold"])
        _need(
            len(bounds) == categorical + 1
            and bounds[0] == 0
            and bool((np.diff(bounds) > 0).all())
            and bounds[-1] == len(words)
            and bool(((words >= 0) & (words < 1 << 32)).all())
            and sorted(chosen.tolist()) == list(range(categorical)),
            f"the sets of {where}",
        )


def _check_shape(tree: dict[str, str], inner: int, leaves: int, where: str) -> None:
    """Every node but the first is the child of one node, which comes before it."""
    seen: set[int] = set()
    left, right = _wholes(tree["left_child"]), _wholes(tree["right_child"])
    _need(len(left) == len(right) == inner, f"the nodes of {where}")
    for node, children in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        for child in children:
            sound = node < child < inner if child >= 0 else -leaves <= child
            _need(sound and child not in seen, f"a node of {where}")
            seen.add(child)


def _need(sound: bool, what: str) -> None:
    if not sound:
        raise ValueError(f"{what} cannot be")


def _entries(lines: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Lines of names and values, with just these names in this order."""
    found = [line.partition("=") for line in lines]
    _need([name for name, _, _ in found] == list(names), "the order of its entries")
    return {name: value for name, _, value in found}


def _whole(text: str) -> int:
    _need(_WHOLE.fullmatch(text) is not None, "a number of it")
    return int(text)


def _wholes(text: str) -> NDArray[np.int64]:
    if not text:
        return np.zeros(0, np.int64)
    _need(_WHOLES.fullmatch(text) is not None, "a number of it")
    return np.array(text.split(" "), np.int64)


def _within(text: str, count: int, low: int, high: int, what: str) -> NDArray[np.int64]:
    found = _wholes(text)
    _need(len(found) == count and bool(((found >= low) & (found < high)).all()), what)
    return found


def _numbers(text: str, count: int) -> NDArray[np.float64]:
    words = text.split(" ") if text else []
    sound = not words or _NUMBERS.fullmatch(text) is not None
    _need(len(words) == count and sound, "a number of it")
    return np.array(words, np.float64)
