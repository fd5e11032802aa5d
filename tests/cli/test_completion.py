"""Shell completion: the right words, in each shell, without waiting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relfrog.cli import cli
from relfrog.cli.completion import COMPLETERS, SHELLS, script


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that look like datasets and runs, and a command `relfrog` to complete."""
    folder = tmp_path_factory.mktemp("completion")
    for name in ("shop", "data/web shop"):
        for part in ("db", "tasks/churn", "tasks/spending", "tasks/unfinished"):
            (folder / name / part).mkdir(parents=True)
        for file in ("manifest.yaml", "tasks/churn/manifest.yaml", "tasks/spending/manifest.yaml"):
            (folder / name / file).touch()
    (folder / "runs" / "churn").mkdir(parents=True)
    (folder / "runs" / "churn" / "run.json").write_text("{}")
    (folder / ".hidden").mkdir()
    (folder / "notes.txt").touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "relfrog").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m relfrog "$@"\n')
    (folder / "bin" / "relfrog").chmod(0o755)
    for shell in SHELLS:
        (folder / f"relfrog.{shell}").write_text(script(cli, shell))
    return folder


#: What is typed so far, and what may come.
CASES = {
    "relfrog ins": ["inspect"],
    "relfrog inspect ": ["bin/", "data/", "runs/", "shop"],
    "relfrog inspect data/": ["data/web shop"],
    "relfrog check shop ": ["churn", "spending"],
    "relfrog train shop sp": ["spending"],
    "relfrog train 'data/web shop' c": ["churn"],
    "relfrog evaluate runs/": ["runs/churn"],
    "relfrog roles nowhere/": [],
    "relfrog train shop churn --preset paper/rel-f1-driver-t": ["paper/rel-f1-driver-top3"],
    "relfrog train shop churn --set fd_": [
        "fd_every=", "fd_training=", "fd_pairs=", "fd_negatives=", "fd_false_negatives=",
        "fd_directions=", "fd_start=", "fd_tau=", "fd_orthonormal=", "fd_final=", "fd_seeds=",
    ],
    "relfrog train shop churn --set strategy=": ["strategy=uniform", "strategy=last", "strategy=events"],
    "relfrog train shop churn --set fd_final=t": ["fd_final=true"],
    "relfrog train shop churn --roles r": ["random", "runs/"],
    "relfrog train shop churn --size me": ["medium"],
    "relfrog completion z": ["zsh"],
}  # fmt: skip


def ran(place: Path, *command: str) -> str:
    env = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_bash(place: Path) -> None:
    """Through the script itself, as bash calls it: what it would put in place of the last word."""
    asks = "".join(f'try "{typed}"\n' for typed in CASES)
    out = ran(
        place, "bash", "--norc", "-c",
        "compopt() { options=$2; }\nsource relfrog.bash\n"
        'try() { COMP_LINE=$1 COMP_POINT=${#1} options=; _relfrog_completion relfrog; '
        "printf '%s|' \"${COMPREPLY[@]}\"; echo \"$options\"; }\n" + asks,
    )  # fmt: skip
    for line, (typed, expected) in zip(out.splitlines(), CASES.items(), strict=True):
        *found, options = line.split("|")
        last = typed.split(" ")[-1]
        begin = last.find("=") + 1  # bash itself keeps what stands before the sign
        if not expected:
            assert found in ([], [""])
            continue
        assert found == [word[begin:].replace(" ", "\\ ") for word in expected], typed
        open_end = any(word.endswith(("/", "=")) for word in found)
        assert ("nospace" in options.split()) == open_end


@pytest.mark.slow
def test_fish(place: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not here: apt-get install fish")
    asks = "".join(f'complete -C "{typed}"; echo "|";' for typed in CASES)
    out = ran(place, "fish", "--no-config", "-c", f"source relfrog.fish; {asks}")
    for part, (typed, expected) in zip(out.split("|\n"), CASES.items(), strict=False):
        found = [line.split("\t")[0].replace("\\ ", " ").strip("'") for line in part.splitlines()]
        assert sorted(found) == sorted(expected), typed


@pytest.mark.slow
def test_zsh(place: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not here: apt-get install zsh")
    asks = "".join(
        f"words=({typed}{' ' + chr(39) * 2 if typed.endswith(' ') else ''}); CURRENT=$#words; "
        "_relfrog_completion; print -- '|';"
        for typed in CASES if "'" not in typed  # words are quoted again by zsh itself
    )  # fmt: skip
    out = ran(
        place, "zsh", "-fc",
        "compdef() {}; _describe() { print -l -- ${described%%:*} };"
        "compadd() { local name=${@[-1]}; print -l -- ${(P)name} }; source relfrog.zsh;" + asks,
    )  # fmt: skip
    cases = {typed: words for typed, words in CASES.items() if "'" not in typed}
    for part, (typed, expected) in zip(out.split("|\n"), cases.items(), strict=False):
        found = [line for line in part.splitlines() if line]
        assert sorted(found) == sorted(expected), typed


def test_parameters_are_completed_by_name_in_every_command() -> None:
    seen = set()
    for command in cli.commands.values():
        for param in command.params:
            if param.name in COMPLETERS:
                assert "shell_complete" in vars(param), (command.name, param.name)
                seen.add(param.name)
    assert seen >= {"dataset", "task", "run", "preset", "settings", "roles"}


def test_it_answers_without_heavy_libraries(place: Path) -> None:
    code = (
        "import sys; from relfrog.cli import cli; from relfrog.cli.completion import COMPLETERS as c;"
        "import click; x = click.Context(cli); [f(x, '') for f in c.values()];"
        "print([m for m in ('torch', 'pandas', 'numpy', 'duckdb', 'relbench') if m in sys.modules])"
    )
    assert ran(place, sys.executable, "-c", code).strip() == "[]"
