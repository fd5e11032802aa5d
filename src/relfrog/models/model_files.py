"""Whether the files of a run's model are those that were saved: by their checksums alone.

What a run has answered is kept beside it, so a report may show answers of a model that it does not
load. This takes a moment and no data.
"""

from __future__ import annotations

from pathlib import Path

from relfrog.errors import RunError
from relfrog.models.booster_file import check_sums
from relfrog.models.run_forms import RankerFile
from relfrog.support.forms import read_json
from relfrog.support.tensors import load_tensors, read_arrays

__all__ = ["check_model_files"]


def check_model_files(folder: Path) -> None:
    """Check the model of a run, and those of its members and of validation, inside it.

    Raises:
        RunError: A file is missing or damaged.
    """
    for path in sorted(folder.rglob("model.safetensors")):
        load_tensors(path)
    for path in sorted(folder.rglob("columns.safetensors")):
        try:
            read_arrays(path)
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read ({error}). Train again.") from None
    for path in sorted(folder.rglob("lightgbm.json")):
        check_sums(path.parent, read_json(path, RankerFile)["files"])
