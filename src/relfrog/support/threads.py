"""Threads: a fixed number for thread_limit, and one that reads ahead."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

__all__ = ["read_ahead", "thread_limit"]


@contextmanager
def thread_limit(threads: int) -> Iterator[None]:
    """Let PyTorch and NumPy compute on this many threads, in the whole process, and restore it.

    Sums in another order differ in their last digits. With a fixed number of threads, neither the
    number of cores nor OMP_NUM_THREADS changes what a model learns.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with _blas(len(sys.modules)).limit(limits=threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _blas(modules: int) -> Any:
    """The libraries that are loaded, looked for again only when more modules are: it takes 5 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_END = object()


def read_ahead(items: Iterator[Any], depth: int = 2) -> Iterator[Any]:
    """Iterate in a background thread, at most ``depth`` items ahead.

    Arrow, DuckDB and the database drivers release the GIL, so reading and writing overlap on two
    cores. An exception in the thread is raised here; when the caller stops, so does the thread.
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

    def produce() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
            put(_END)
        except BaseException as error:
            put(_END, error)
        finally:
            # Cursors and files are closed by the thread that opened them.
            close = getattr(items, "close", None)
            if close is not None:
                close()

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
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
        producer.join()
