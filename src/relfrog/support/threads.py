"""How many threads numbers are added up on: sums in another order end in other last digits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ahead", "computing"]


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


_END = object()


def ahead(items: Iterator[Any], depth: int = 2) -> Iterator[Any]:
    """The same items, made in a thread of their own, at most ``depth`` of them in advance.

    Arrow, DuckDB and the database drivers let go of Python's lock while they work, so reading and
    writing overlap on two cores. An exception of the maker reaches the user; when the user stops,
    so does the maker.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: Any, error: BaseException | None = None) -> None:
        while not stopped.is_set():
            try:
                ready.put((item, error), timeout=0.1)
                return
            except queue.Full:
                continue

    def make() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
            put(_END)
        except BaseException as error:
            put(_END, error)
        finally:
            # Let the maker's own cleanup run in the thread that opened its things.
            close = getattr(items, "close", None)
            if close is not None:
                close()

    maker = threading.Thread(target=make, daemon=True)
    maker.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        stopped.set()
        maker.join()
