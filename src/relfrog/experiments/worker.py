"""A process that trains runs for others: a JSON line in, a JSON line out, until there is no more.

    python -m relfrog.experiments.worker

Every job runs in a child of its own that starts with the libraries loaded: what it does to memory
ends with it, and a job that is killed takes nothing else with it. When whoever gave the jobs is
gone, the job in progress is ended too; its run folder can be taken up again.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from relfrog.errors import RelFrogError, RunError, UsageError
from relfrog.models.run_folder import is_run
from relfrog.support.files import read_json, write_json

__all__ = ["is_complete", "main", "preload", "run_job"]


def is_complete(folder: Path) -> bool:
    """Whether a run is there and has ended."""
    if not is_run(folder) or not (folder / "metrics.json").is_file():
        return False
    return bool(read_json(folder / "run.json").get("status") == "complete")


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Train a run, or go on with it; then look into it, if that is asked for.

    Args:
        job: `dataset`, `task`, `folder`; `settings`, `preset`, `size`, `seed`, `gates`, `members`
            as `train` has them; `differences`: a file for what `relfrog.analysis.fd_space` finds.

    Returns:
        `{}`, or what went wrong: `error`, and `unfit` if the settings do not fit the task.
    """
    try:
        _train(job)
        if job.get("differences"):
            _look_into(job)
    except UsageError as error:
        return {"error": str(error), "unfit": True}
    except RelFrogError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except KeyboardInterrupt:
        return {"error": "interrupted"}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    return {}


def _train(job: dict[str, Any]) -> None:
    from relfrog.runs.train import train

    folder = Path(job["folder"])
    if is_complete(folder):
        return
    options = {
        "roles": job.get("gates"), "size": job["size"], "preset": job.get("preset"),
        "settings": job["settings"], "seed": job["seed"], "baselines": False,
        "members": job.get("members"),
    }  # fmt: skip
    if is_run(folder):
        try:
            train(job["dataset"], job["task"], folder, resume=True, **options)
            return
        except (RunError, UsageError):
            # Half of it is damaged, or of an older version: it is trained anew.
            pass
    train(job["dataset"], job["task"], folder, overwrite=True, **options)


def _look_into(job: dict[str, Any]) -> None:
    from relfrog.analysis.fd_space import differences
    from relfrog.runs.run import load_run

    file = Path(job["differences"])
    if file.is_file():
        return
    found = differences(load_run(job["folder"]))
    write_json(
        file,
        {
            "points": [[round(float(x), 4) for x in point] for point in found.points],
            "key": found.key, "matched": found.matched.tolist(),
            "separation": found.separation, "scored": found.scored,
            "silhouette": found.silhouette,
            "explained": found.explained,
        },
    )  # fmt: skip


def _in_child(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job in a child process, and end it when nobody waits for it any more."""
    if not hasattr(os, "fork"):
        return run_job(job)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(reading)
        said = json.dumps(run_job(job)).encode()
        sys.stderr.flush()
        os.write(writing, said)
        os._exit(0)
    os.close(writing)
    parts = []
    while True:
        ready, _, _ = select.select([reading, 0], [], [])
        if reading in ready:
            part = os.read(reading, 1 << 16)
            if not part:
                break
            parts.append(part)
        elif 0 in ready:  # the next job comes after this one's answer: nobody is there any more
            os.kill(child, signal.SIGINT)
            break
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if parts:
        answer: dict[str, Any] = json.loads(b"".join(parts))
        return answer
    number = os.waitstatus_to_exitcode(status)
    why = f"killed by signal {-number}" if number < 0 else f"ended with {number}"
    hint = "; out of memory?" if number == -signal.SIGKILL else ""
    return {"error": f"the process was {why}{hint}"}


def preload() -> None:
    """Load libraries once, before the first job; nothing here starts a thread."""
    for name in (
        "relfrog.runs.train", "relfrog.analysis.fd_space", "sklearn.decomposition",
        "sklearn.metrics",
        "torch._dynamo",  # takes seconds, of which otherwise the first optimizer would be in need
    ):  # fmt: skip
        importlib.import_module(name)


def main() -> None:
    """Answer jobs until standard input ends."""
    preload()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the child
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    for line in iter(sys.stdin.readline, ""):
        answer = _in_child(json.loads(line))
        os.write(answers, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
