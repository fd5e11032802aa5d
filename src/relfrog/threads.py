"""How many threads numbers are added up on: sums in another order end in other last digits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["computing"]


@contextmanager
def computing(threads: int) -> Iterator[None]:
    """Let PyTorch and NumPy compute on so many threads, whatever the machine has.

    So neither the number of cores nor OMP_NUM_THREADS decides what a model learns. Afterwards all
    is as it was. The number holds for the whole process.
    """
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
