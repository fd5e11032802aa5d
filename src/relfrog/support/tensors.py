"""Files of tensors with a checksum: one that was damaged is refused, not computed with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relfrog.errors import RunError
from relfrog.support.files import atomic_write
from relfrog.support.memory import total_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["load_tensors", "read_arrays", "read_tensors", "save_arrays", "save_tensors"]

_SUM = "sha256"
#: What safetensors calls the types that are read; others are known to one of the libraries only.
_TYPES = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "BF16", "F32", "F64"}


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None
) -> None:
    """Write tensors, and texts about them, as a safetensors file, atomically."""
    from safetensors.torch import save

    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    about = dict(about or {})
    content = save(plain, {**about, _SUM: _checksum(plain, about)})
    with atomic_write(path) as file:
        file.write(content)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file.

    Raises:
        RunError: The file is missing or damaged.
    """
    try:
        return read_tensors(path)[0]
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}). Train again.") from None


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a file, and the texts about them.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged.
    """
    return _read(path, "pt")


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write NumPy arrays as a safetensors file, atomically."""
    import numpy as np
    from safetensors.numpy import save

    # The library writes memory as it lies there, whatever array it is read as.
    plain = {
        name: np.asarray(array, array.dtype.newbyteorder("="), order="C")
        for name, array in arrays.items()
    }
    content = save(plain, {_SUM: _checksum(plain, {})})
    with atomic_write(path) as file:
        file.write(content)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read what `save_arrays` wrote.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged.
    """
    return _read(path, "np")[0]


def _read(path: Path, framework: str) -> tuple[dict[str, Any], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    if 0 < total_memory() < path.stat().st_size:
        raise ValueError("it is larger than the memory of this machine")
    try:
        with safe_open(path, framework) as file:
            about = dict(file.metadata() or {})
            types = {file.get_slice(name).get_dtype() for name in file.keys()}
            if not types <= _TYPES:
                raise ValueError(f"a tensor of type {min(types - _TYPES)}")
            parts = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, TypeError, OverflowError, RuntimeError) as error:
        # PyTorch refuses sizes that a header may have.
        raise ValueError(" ".join(str(error).split())[:200]) from None
    # What was written before there were checksums has none.
    expected = about.pop(_SUM, None)
    if expected is not None and expected != _checksum(parts, about):
        raise ValueError("its checksum is wrong")
    return parts, about


def _checksum(parts: Mapping[str, Any], about: Mapping[str, str]) -> str:
    digest = hashlib.sha256("".join(about[name] for name in sorted(about)).encode())
    for name in sorted(parts):
        part = parts[name]
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
        digest.update(_bytes(part))
    return digest.hexdigest()


def _bytes(part: Any) -> Any:
    import numpy as np

    if isinstance(part, np.ndarray):
        return np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
    import torch

    return part.contiguous().reshape(-1).view(torch.uint8).numpy().data
