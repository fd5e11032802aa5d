"""Jobs in processes of their own: what they give, what they cannot do, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from relfrog.support import sandbox
from relfrog.support.sandbox import Ended, Failed, Limits, run_job, work_folder

LIMITS = Limits(seconds=20, memory=256 << 20, disk=1 << 20)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of jobs that misbehave, where the helper process finds it."""
    (tmp_path / "odd_jobs.py").write_text(
        textwrap.dedent("""
        import ctypes, os, signal, sys, time

        def prepare(): pass

        def run(what):
            if what == "crash": ctypes.string_at(0)
            if what == "abort": os.abort()
            if what == "hang": time.sleep(60)
            if what == "spin":
                while True: pass
            if what == "memory": bytearray(1 << 30)
            if what == "file": open("large", "wb").write(bytes(2 << 20))
            if what == "fail": raise LookupError("no such thing")
            if what == "long": return "x" * (2 << 20)
            if what == "print": print("noise", flush=True)
            if what == "exit": sys.exit(3)
            return [os.getpid(), os.getcwd(), sorted(os.environ)]
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    sandbox._helper().close()  # one that does not know this folder
    return "odd_jobs"


def test_each_job_has_a_process_in_its_folder(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    with work_folder() as folder:
        assert folder.stat().st_mode & 0o077 == 0
        first, where, seen = run_job(job, folder, LIMITS, what="tell")
        second, *_ = run_job(job, folder, LIMITS, what="print")
        assert len({first, second, os.getpid()}) == 3
        assert Path(where).samefile(folder)
        assert "PGPASSWORD" not in seen
    assert not folder.exists()


@pytest.mark.parametrize(
    ("what", "kind", "says"),
    [
        ("fail", Failed, "no such thing"),
        ("memory", Failed, "out of memory"),
        ("file", Failed, "too large"),
        ("crash", Ended, "SIGSEGV"),
        ("abort", Ended, "SIGABRT"),
        ("exit", Ended, "without an answer"),
        ("long", Ended, "."),
    ],
)
def test_what_goes_wrong_stays_there(job: str, what: str, kind: type, says: str) -> None:
    with work_folder() as folder:
        with pytest.raises(kind, match=says):
            run_job(job, folder, LIMITS, what=what)
        assert run_job(job, folder, LIMITS, what="tell")  # and the next one is not concerned


@pytest.mark.parametrize("what", ["hang", "spin"])
def test_a_job_is_killed_at_its_deadline(job: str, what: str) -> None:
    began = time.monotonic()
    with work_folder() as folder:
        with pytest.raises(Ended) as caught:
            run_job(job, folder, Limits(0.3, 256 << 20, 1 << 20), what=what)
        assert caught.value.late
        assert run_job(job, folder, LIMITS, what="tell")
    assert time.monotonic() - began < 10


def is_running(process: str) -> bool:
    """Whether a process is there; one that has ended may wait for somebody to notice."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_its_parent_ends(job: str, tmp_path: Path, number: int) -> None:
    """An interruption, or a kill: the job ends, and its folder goes."""
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from relfrog.support.sandbox import Limits, _helper, run_job, work_folder
        with work_folder() as folder:
            pid, *_ = run_job("odd_jobs", folder, Limits(60, 1 << 28, 1 << 20), what="tell")
            print(_helper()._process.pid, folder, flush=True)
            run_job("odd_jobs", folder, Limits(60, 1 << 28, 1 << 20), what="hang")
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        helper, folder = process.stdout.readline().decode().split()
        deadline = time.monotonic() + 20
        process.send_signal(number)
        try:
            assert process.wait(timeout=10) != 0
        finally:
            process.kill()  # or a later test would be blamed for it
    while Path(folder).exists() or is_running(helper):
        assert time.monotonic() < deadline, "something goes on"
        time.sleep(0.02)
