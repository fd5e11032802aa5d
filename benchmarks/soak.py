"""Kill training at random moments, many times, and see whether it ends as if nothing had happened.

    python benchmarks/soak.py --data ../shared/data/rel-f1 --task driver-top3 --kills 50

A process trains with a checkpoint after every step, and is killed with SIGKILL after a random
time; another one takes the run up again, until it ends. Its weights and scores must be those of a
run that was left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from measuring import command_line

CODE = """
import functools, sys, warnings
import relfrog.models.network_model
from relfrog.training.trainer import Trainer

warnings.simplefilter("ignore")
relfrog.models.network_model.Trainer = functools.partial(Trainer, checkpoint_seconds=-1.0)
data, task, out, resume = sys.argv[1:]
settings = {"epochs": 4, "steps_per_epoch": 25, "channels": 16, "neighbors": 8, "batch_size": 64}
relfrog.train(data, task, out, model="frog", settings=settings, resume=resume == "True")
"""


def start(data: str, task: str, out: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", textwrap.dedent(CODE), data, task, str(out)]
    return subprocess.Popen([*words, str((out / "run.json").exists())])


def fingerprint(run: Path) -> dict[str, str]:
    names = ("model.safetensors", "metrics.json", "roles.json")
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="a dataset folder")
    parser.add_argument("--task", required=True)
    parser.add_argument("--kills", type=int, default=20, help="at most so many per run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, help="JSON with what came out")
    options = parser.parse_args()
    rng, found = random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        assert start(options.data, options.task, Path(folder, "whole")).wait() == 0
        seconds, expected = time.monotonic() - began, fingerprint(Path(folder, "whole"))
        for number in range(options.runs):
            out, kills, errors = Path(folder, str(number)), 0, 0
            while True:
                process = start(options.data, options.task, out)
                try:
                    # Later and later, so that it comes to its end.
                    code = process.wait(
                        None if kills >= options.kills else rng.uniform(2, 0.5 * seconds + kills)
                    )
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    kills += 1
                    continue
                if code == 0:
                    break
                errors += 1
                assert errors < 3, "it does not go on"
            same = fingerprint(out) == expected
            found.append({"run": number, "kills": kills, "errors": errors, "same": same})
            print(json.dumps(found[-1]), flush=True)
    total = {"kills": sum(f["kills"] for f in found), "same": all(f["same"] for f in found)}
    print(json.dumps(total))
    if options.out:
        content = {"command": command_line(), "seconds_undisturbed": round(seconds, 1)}
        options.out.write_text(json.dumps({**content, **total, "runs": found}, indent=1) + "\n")
    sys.exit(not total["same"])


if __name__ == "__main__":
    main()
