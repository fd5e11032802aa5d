"""Files of tensors: what is read is what was written, however it lay in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from relfrog.support.tensors import read_arrays, read_tensors, save_arrays, save_tensors

TABLE = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "array",
    [
        TABLE, TABLE.T, TABLE[:, 1:], TABLE[::-1], np.arange(10)[::2], np.array(2.5),
        np.empty((0, 3)), np.broadcast_to(np.ones(1), 4), np.arange(3, dtype=">f8"),
        np.array([True, False]), np.arange(3, dtype=np.uint16),
    ],
)  # fmt: skip
def test_an_array_is_read_as_it_was_written(array: NDArray, tmp_path: Path) -> None:
    save_arrays(tmp_path / "file", {"some": array, "other": np.arange(2)})
    found = read_arrays(tmp_path / "file")["some"]
    assert found.shape == array.shape
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).view(2, 3).T, torch.arange(10)[::2], torch.tensor(2.5),
        torch.empty(0, 3), torch.ones(1).expand(4), torch.ones(3).bfloat16(),
        torch.tensor([True, False]), torch.ones(3, requires_grad=True),
    ],
)  # fmt: skip
def test_a_tensor_is_read_as_it_was_written(tensor: Tensor, tmp_path: Path) -> None:
    save_tensors(tmp_path / "file", {"some": tensor}, {"about": "it"})
    found, about = read_tensors(tmp_path / "file")
    assert found["some"].dtype == tensor.dtype
    assert torch.equal(found["some"], tensor.detach())
    assert about == {"about": "it"}


def test_what_was_damaged_is_refused(tmp_path: Path) -> None:
    save_arrays(tmp_path / "file", {"some": TABLE})
    content = bytearray((tmp_path / "file").read_bytes())
    content[-3] ^= 1
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        read_arrays(tmp_path / "file")
