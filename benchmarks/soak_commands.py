"""Kill every command that writes with SIGKILL at random moments, and look at what is left.

    python benchmarks/soak_commands.py --kills 500 --out benchmarks/soak_commands.json

What was there before must be whole, or what replaces it; nothing but partial files, whose names say
so, may lie beside it; and the next command of the same kind must end as if nothing had happened.
Commands run in forks of one process, so that a kill does not wait for imports, and are the ones of
the command line. What they make lies on a database of a few rows: a kill should meet writing, not
arithmetic.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import command_line
from soak_cases import commands, typed


def forked(work: Callable[[], Any], after: float | None = None) -> tuple[int, float]:
    """Run something in a fork, killed after a time if one is given: how it ended, how long."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            found = work()
            code = found if isinstance(found, int) and not isinstance(found, bool) else 0
        except BaseException:
            traceback.print_exc(limit=-4)
        finally:
            sys.stderr.flush()
            os._exit(code)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        passed = time.monotonic() - began
        if done:
            return os.waitstatus_to_exitcode(status), passed
        if after is not None and passed >= after:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -9, passed
        time.sleep(0.002)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=500, help="of all commands together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="at most")
    parser.add_argument("--only", action="append", help="this command; may be repeated")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.out = options.out and options.out.resolve()
    warnings.simplefilter("ignore")
    faulthandler.enable()
    rng, defects = random.Random(options.seed), []
    kills: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as base:
        os.environ["RELFROG_CACHE"] = f"{base}/cache"
        os.chdir(base)
        all_of = commands(Path(base, "all"))
        if options.only:
            all_of = {name: all_of[name] for name in options.only}
        seconds, expected = {}, {}
        for name, command in all_of.items():
            code, seconds[name] = forked(lambda c=command: typed(c.words()))
            assert code == 0, (name, code)
            expected[name] = command.result()
            print(name, round(seconds[name], 2), flush=True)
        end = time.monotonic() + 60 * options.minutes
        while sum(kills.values()) < options.kills and time.monotonic() < end:
            for name, command in all_of.items():
                words = command.words()
                after = rng.uniform(0, 1.05 * seconds[name])
                code, passed = forked(lambda w=words: typed(w), after)
                kills[name] += code == -9
                ended[name] += code == 0
                if code == 0:
                    seconds[name] = 0.7 * seconds[name] + 0.3 * passed  # on a machine that varies
                elif code > 0:
                    defects.append(f"{name}: ended with {code} after {kills[name]} kills: {words}")
                if forked(command.look)[0] != 0:
                    defects.append(f"{name}: not whole after {kills[name]} kills")
                odd = [
                    p.name for p in command.folder.iterdir()
                    if ".partial-" not in p.name and p.name not in command.names
                ]  # fmt: skip
                if odd:
                    defects.append(f"{name}: left {odd}")
            print(sum(kills.values()), dict(kills), defects[-3:], flush=True)
        for name, command in all_of.items():
            code, _ = forked(lambda c=command: typed(c.words()))
            if code != 0 or command.result() != expected[name]:
                defects.append(f"{name}: at the end {code}, not what it was")
            left = [p.name for p in command.folder.iterdir() if ".partial-" in p.name]
            if left:
                defects.append(f"{name}: {left} is left after a command that ended")
    found: dict[str, list[dict[str, Any]]] = {}
    if options.out and options.out.exists():  # earlier runs are kept
        found = json.loads(options.out.read_text())["commands"]
    for name in all_of:
        run = {
            "command": command_line(), "kills": kills[name],
            "ended_before": ended[name], "seconds_undisturbed": round(seconds[name], 2),
            "defects": [text for text in defects if text.startswith(f"{name}: ")],
        }  # fmt: skip
        found.setdefault(name, []).append(run)
    total = sum(run["kills"] for runs in found.values() for run in runs)
    content = {"kills": total, "commands": found}
    print(json.dumps(content, indent=1))
    if options.out:
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()
