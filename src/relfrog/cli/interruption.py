"""Ctrl-C and SIGTERM: the first one tidies up, the second one ends at once.

Python runs a signal's handler in the main thread, between two of its own steps. That is late where
this thread is inside a library or waits for other processes, which is where a second signal is
needed. So a thread that does nothing else reads the signals as they arrive.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from functools import cache

__all__ = ["end_processes", "interrupted", "listen"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: One key press may arrive as several signals, from the terminal and from whoever started us: so
#: many seconds after the first they count as the same.
SAME = 0.3
_first = 0.0


def listen() -> None:
    """Let both signals end this process: raise KeyboardInterrupt, and the second time end it."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    signal.set_wakeup_fd(_sending(os.getpid()), warn_on_full_buffer=False)


def interrupted() -> bool:
    """Whether a signal has come."""
    return bool(_first)


def end_processes() -> None:
    """End all processes that were started: without them a server would go on importing."""
    processes = sys.modules.get("relfrog.cluster.processes")
    with contextlib.suppress(Exception):
        if processes is not None:
            processes.kill_all()


def _interrupt(number: int, frame: object) -> None:
    """End both ways alike, so that half-written folders are removed."""
    global _first
    if not _first:
        _first = time.monotonic()
        raise KeyboardInterrupt


@cache
def _sending(process: int) -> int:
    """The file to which Python writes each signal of a process; a thread of it reads them."""
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    threading.Thread(target=_read, args=(reading,), name="relfrog-signals", daemon=True).start()
    return writing.detach()


def _read(reading: socket.socket) -> None:
    first = 0.0
    while came := reading.recv(64):
        # Others have taken the signals over, or never gave them to us.
        if not any(n in _SIGNALS and signal.getsignal(n) is _interrupt for n in came):
            continue
        first = first or time.monotonic()
        if time.monotonic() - first > SAME:
            _end()


def _end() -> None:
    """End at once, with all processes that were started: theirs is half-made, too."""
    end_processes()
    with contextlib.suppress(OSError):  # nobody reads any more
        os.write(2, b"Ended. What is half-made is removed by the next command.\n")
    os._exit(130)
