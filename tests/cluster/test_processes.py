"""Jobs in processes of their own: what ends one ends no other, and none outlives who gave it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from process_tree import descendants, running
from relfrog.cluster import processes
from relfrog.cluster.processes import how_ended, run_jobs


def work(job: dict[str, Any]) -> dict[str, Any]:
    """What the processes of these tests do."""
    if job["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if job["do"] == "exit":
        os._exit(3)
    if job["do"] == "print":
        print("this is no answer", flush=True)
        os.write(2, b"nor is this\n")
    if job["do"] == "wait":
        Path(job["file"]).write_text(str(os.getpid()))
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            Path(job["file"]).write_text("interrupted")
            return {"error": "interrupted"}
    if job["do"] == "be deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        Path(job["file"]).write_text(str(os.getpid()))
        time.sleep(60)
    return {"pid": os.getpid(), "said": os.environ.get("SAID")}


def appears(path: Path, text: str = "", seconds: float = 200) -> str:
    """The content of a file, once it is there and begins so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and (found := path.read_text()) and found.startswith(text):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{path} does not appear")


def gone(pid: int, seconds: float = 60) -> bool:
    """Whether a process ends within some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_job_that_is_killed_takes_nothing_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAID", "as it is now")
    jobs = [{"do": what} for what in ("die", "print", "exit", "nothing", "nothing")]
    log = tmp_path / "log.txt"
    answers = dict(run_jobs(work, jobs, 2, 1, log))
    assert sorted(answers) == [0, 1, 2, 3, 4]
    assert answers[0] == {"error": "the process was killed by signal 9; out of memory?"}
    assert answers[2] == {"error": "the process ended with code 3"}
    assert len({answers[number]["pid"] for number in (1, 3, 4)}) == 3
    assert {answers[number]["said"] for number in (1, 3, 4)} == {"as it is now"}
    assert log.read_text() == "this is no answer\nnor is this\n"
    assert capfd.readouterr() == ("", "")


def test_who_stops_listening_interrupts_the_jobs_in_progress(tmp_path: Path) -> None:
    file = tmp_path / "file"
    jobs = [{"do": "nothing"}, {"do": "wait", "file": str(file)}, {"do": "nothing"}]
    answers = run_jobs(work, jobs, 2, 1, tmp_path / "log")
    assert {next(answers)[0], next(answers)[0]} == {0, 2}
    appears(file)
    answers.close()
    assert file.read_text() == "interrupted"


def test_a_job_that_goes_on_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    jobs = [{"do": "nothing"}, {"do": "be deaf", "file": str(file)}]
    answers = run_jobs(work, jobs, 2, 1, tmp_path / "log", 0.5)
    assert next(answers)[0] == 0
    pid = int(appears(file))
    answers.close()
    assert gone(pid, 0.1)


SCRIPT = """
import sys
from pathlib import Path
from tests.cluster.test_processes import work
from relfrog.cli.interruption import listen
from relfrog.cluster import processes
processes.PRELOAD = ["relfrog.cluster.processes"]
jobs = [{"do": sys.argv[2], "file": sys.argv[1]}]
if sys.argv[3:]:
    listen()
print(list(processes.run_jobs(work, jobs, 1, 1, Path(sys.argv[1] + ".log"))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_job_outlives_who_gave_it(tmp_path: Path, how: signal.Signals) -> None:
    """Killed, or by Ctrl-C, which reaches all processes of a terminal at once."""
    file = tmp_path / "file"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(file), "wait"], start_new_session=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            pid = int(appears(file))
        finally:
            os.killpg(process.pid, how)
        _, err = process.communicate(timeout=100)
    assert process.returncode != 0
    appears(file, "interrupted")
    assert gone(pid)
    assert err.count("Traceback") <= 1, "only of the script"


@pytest.mark.slow
def test_a_second_signal_waits_for_no_job(tmp_path: Path) -> None:
    """Nor does anything go on: neither the job nor the server that forked it."""
    file = tmp_path / "file"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(file), "be deaf", "listen"], start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            appears(file)
            started = descendants(process.pid)
            assert len(started) >= 2
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):  # it waits for the job, up to GRACE
                process.wait(1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(processes.GRACE / 3) == 130
        finally:
            process.kill()
    end = time.monotonic() + processes.GRACE / 3
    while running(started):
        assert time.monotonic() < end, "something goes on"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_script_without_a_guard_is_run_once(shop: Path, tmp_path: Path) -> None:
    script = tmp_path / "study.py"
    script.write_text(f"""
from relfrog.experiments import experiment
print("begin", flush=True)
found = experiment(
    "main", datasets=[{str(shop)!r}], tasks=["buys"], models=["mean"], seeds=1, jobs=2,
    out="out",
)
print(len(found["runs"]), found["failed"])
""")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(processes.__file__).parents[2])},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("begin\n2 []\n", 0), done.stderr


def test_how_a_process_ended_is_said_also_where_there_are_no_signals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert how_ended(-9) == "was killed by signal 9; out of memory?"
    assert how_ended(-6) == "was killed by signal 6"
    monkeypatch.delattr(signal, "SIGKILL")
    assert how_ended(3) == "ended with code 3"
