"""The helper process of `relfrog.support.sandbox`: waits for jobs, and forks for each."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import sys
from typing import Any, BinaryIO

__all__ = ["serve"]

#: The longest answer of a job; data go through files.
_LONGEST = 1 << 20


def serve() -> None:
    """Answer requests, a line each, until the parent process is gone."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Nothing that a library prints may look like an answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    request: dict[str, Any] = {}
    while line := requests.readline():
        request = json.loads(line)
        try:
            importlib.import_module(request["module"]).prepare()  # before the fork: paid for once
            if hasattr(os, "fork"):
                answer = _forked(request, requests)
            else:
                answer = _called(request)
        except Exception as error:
            answer = {"failed": type(error).__name__, "text": str(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
    shutil.rmtree(request.get("folder", ""), ignore_errors=True)


def _forked(request: dict[str, Any], requests: BinaryIO) -> dict[str, Any]:
    """The answer of a job in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            _limit(request)
            answer = json.dumps(_called(request)).encode()
            with os.fdopen(writing, "wb") as file:
                file.write(answer)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    answer = b""
    with os.fdopen(reading, "rb", buffering=0) as file:
        while len(answer) <= _LONGEST:
            ready, _, _ = select.select([file, requests], [], [])
            if requests in ready:  # the parent process is gone: nobody asks any more
                _give_up(child, request["folder"])
            if file in ready:
                part = file.read(65536)
                if not part:
                    break
                answer += part
    if len(answer) > _LONGEST:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if status == 0 and answer:
        found: dict[str, Any] = json.loads(answer)
        return found
    return {"ended": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


def _give_up(child: int, folder: str) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _limit(request: dict[str, Any]) -> None:
    """Set the limits of this process."""
    import resource

    seconds = int(request["seconds"]) + 2  # the clock comes first, unless there are threads
    wanted = {"RLIMIT_CORE": 0, "RLIMIT_CPU": seconds, "RLIMIT_FSIZE": request["disk"]}
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
        wanted["RLIMIT_AS"] = used + request["memory"]
    for name, value in wanted.items():
        number = getattr(resource, name)
        _, most = resource.getrlimit(number)
        if most != resource.RLIM_INFINITY:
            value = min(value, most)
        resource.setrlimit(number, (value, value))


def _called(request: dict[str, Any]) -> dict[str, Any]:
    """The answer of a job in this process."""
    os.chdir(request["folder"])
    run = importlib.import_module(request["module"]).run
    try:
        return {"result": run(**request["arguments"])}
    except MemoryError:
        return {"failed": "MemoryError", "text": "out of memory"}
    except Exception as error:
        return {"failed": type(error).__name__, "text": str(error)[: _LONGEST // 8]}
