"""Damage to the files of a model: noticed, though sizes and times are what they were."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from helpers import inside
from relfrog.support.tensors import load_tensors, read_arrays, read_tensors, save_tensors
from small_store import fit

#: The commands that show what a model answers.
COMMANDS = (["evaluate"], ["predict"], ["explain", "--entity=P01"], ["report"])


def flip(path: Path) -> None:
    """Change one bit of a file: of a number in its last third."""
    before, content = path.stat(), bytearray(path.read_bytes())
    place = len(content) - 1
    if path.suffix == ".txt":
        place = content.index(b"leaf_value=") + len(b"leaf_value=0.00")
    content[place] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgbm", "frog"])
def test_one_bit_is_noticed_by_every_command(
    model: str, store: Path, tmp_path: Path, capfd: Any
) -> None:
    more = {"trials": 1} if model == "lightgbm" else {"epochs": 1}
    run = fit(store, tmp_path / "run", "buys", model=model, **more)
    for command, *options in COMMANDS:  # now all that can be kept is kept
        code, _, err = inside(capfd, command, str(run.folder), *options)
        assert code == 0, err
    files = [
        path
        for name in ("lightgbm-*.txt", "model.safetensors", "columns.safetensors")
        for path in run.folder.glob(name)
        if path.stat().st_size > 200  # trees read no columns: a header alone
    ]
    assert len(files) == {"lightgbm": 1, "frog": 2}[model]
    for file in files:
        whole = shutil.copy2(file, tmp_path / "whole")
        flip(file)
        for command, *options in COMMANDS:
            code, out, err = inside(capfd, command, str(run.folder), *options)
            said = err.strip().splitlines()[-1]
            assert (code, out) == (1, ""), (file.name, command)
            assert "its checksum is wrong" in said, (file.name, command, said)
        shutil.copy2(whole, file)


def test_tensors_without_a_checksum_can_still_be_read(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {"a": torch.arange(3.0), "b": torch.tensor(True), "c": torch.zeros(0, 2)}
    save_file(tensors, tmp_path / "old")
    save_tensors(tmp_path / "new", tensors)
    for name in ("old", "new"):
        found = load_tensors(tmp_path / name)
        assert all(torch.equal(found[key], tensors[key]) for key in tensors)
        assert load_file(tmp_path / name).keys() == tensors.keys()


def write(path: Path, header: dict[str, Any], data: bytes = b"") -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


#: Tensors that safetensors itself lets pass, or half of it: type, shape, bytes.
ODD = [
    ("F32", [1 << 63, 0], 0), ("F32", [1 << 62, 0], 0), ("F32", [1 << 40, 1 << 40], 8),
    ("F4", [2], 1), ("F8_E8M0", [2], 2), ("C64", [1], 8), ("F32", [1] * 5000, 4),
]  # fmt: skip


def test_odd_tensors_are_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    said: list[str] = []
    for kind, shape, size in ODD:
        write(tmp_path / "x", {"a": {"dtype": kind, "shape": shape, "data_offsets": [0, size]}},
              bytes(size))  # fmt: skip
        for read in (read_tensors, read_arrays):
            try:
                read(tmp_path / "x")
            except ValueError as error:
                said.append(str(error))
    assert len(said) >= 8
    assert not [text for text in said if "\n" in text]


def test_a_run_of_another_task_is_refused(store: Path, tmp_path: Path, capfd: Any) -> None:
    run = fit(store, tmp_path / "run", "buys", model="mean")
    about = json.loads((run.folder / "run.json").read_text())
    for change, words in (
        ({"task": "spends"}, "was trained for binary_classification, and task spends of"),
        ({"dataset": "\0"}, "cannot be the name of a file or folder"),
    ):
        (run.folder / "run.json").write_text(json.dumps(about | change))
        for command in ("predict", "evaluate"):
            code, out, err = inside(capfd, command, str(run.folder))
            assert (code, out) == (1, "")
            assert words in err
