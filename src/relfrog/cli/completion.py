"""Shell completion: what may stand next on a command line, and the scripts that ask.

A parameter is completed by its name, in whichever command it stands: `dataset`, `task`, `run`, and
so on. Nothing heavy is imported and no data are read, so that a shell need not wait.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

__all__ = ["COMPLETERS", "SHELLS", "completed", "script"]

SHELLS = ("bash", "zsh", "fish")

Completer = Callable[[click.Context, str], list[str]]


def _folders(incomplete: str, wanted: Callable[[Path], bool]) -> list[str]:
    """Folders that begin so: those that are wanted, and, with a slash, those on the way."""
    head, _, start = incomplete.rpartition("/")
    head = f"{head}/" if "/" in incomplete else ""
    try:
        entries = sorted(Path(head or ".").expanduser().iterdir())
    except (OSError, RuntimeError):
        return []
    names = [
        (path, f"{head}{path.name}")
        for path in entries
        if path.name.startswith(start) and (start or path.name[0] not in "._") and path.is_dir()
    ]
    return [name if wanted(path) else f"{name}/" for path, name in names]


def _is_dataset(path: Path) -> bool:
    return (path / "manifest.yaml").is_file() and (path / "db").is_dir()


def _is_run(path: Path) -> bool:
    return (path / "run.json").is_file()


def _begin(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _datasets(ctx: click.Context, incomplete: str) -> list[str]:
    return _folders(incomplete, _is_dataset)


def _runs(ctx: click.Context, incomplete: str) -> list[str]:
    return _folders(incomplete, _is_run)


def _tasks(ctx: click.Context, incomplete: str) -> list[str]:
    """The tasks of the dataset that stands before."""
    try:
        folder = Path(str(ctx.params.get("dataset") or "")).expanduser() / "tasks"
        names = sorted(path.parent.name for path in folder.glob("[!.]*/manifest.yaml"))
    except (OSError, RuntimeError):
        return []
    return _begin(incomplete, names)


def _presets(ctx: click.Context, incomplete: str) -> list[str]:
    from relfrog.config import presets

    return _begin(incomplete, presets())


def _settings(ctx: click.Context, incomplete: str) -> list[str]:
    """``lr=``; after the sign, the values of settings that have a choice."""
    from relfrog.config import Config
    from relfrog.setting_values import CHOICES

    name, mark, value = incomplete.partition("=")
    if mark:
        kinds = {entry.name: type(entry.default) for entry in fields(Config)}
        values = CHOICES.get(name, ("true", "false") if kinds.get(name) is bool else ())
        return [f"{name}={word}" for word in _begin(value, values)]
    return _begin(incomplete, (f"{entry.name}=" for entry in fields(Config)))


def _roles(ctx: click.Context, incomplete: str) -> list[str]:
    """The words, or a run whose roles to take."""
    words = _begin(incomplete, ("learned", "node", "edge", "random"))
    return words + _folders(incomplete, _is_run)


#: By the name of a parameter.
COMPLETERS: dict[str, Completer] = {
    "dataset": _datasets,
    "task": _tasks,
    "run": _runs,
    "runs": _runs,
    "preset": _presets,
    "settings": _settings,
    "roles": _roles,
}


def completed(params: Iterable[click.Parameter]) -> None:
    """Give every parameter of a known name its completion."""
    for param in params:
        completer = COMPLETERS.get(param.name or "")
        if completer is not None and not isinstance(param.type, click.Choice):
            # Set on the parameter itself, so that no command need think of it.
            vars(param)["shell_complete"] = _asked(completer)


def _asked(completer: Completer) -> Callable[[click.Context, str], list[CompletionItem]]:
    def answer(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in completer(ctx, incomplete)]

    return answer


def script(cli: click.Command, shell: str) -> str:
    """What a shell must read to complete the command `relfrog`."""
    found: Any = get_completion_class(shell)
    made: str = found(cli, {}, "relfrog", "_RELFROG_COMPLETE").source()
    return made


#: Bash breaks words at ``=`` and ``:``, so it gives the whole line, and takes back what is new.
#: A setting or a folder is not complete yet: no space after it.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' completion type value
    COMPREPLY=()
    for completion in $(COMP_LINE="${COMP_LINE:0:COMP_POINT}" \\
        COMP_BREAKS="$COMP_WORDBREAKS" %(complete_var)s=bash_complete "$1"); do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == dir ]]; then
            compopt -o dirnames
        elif [[ $type == file ]]; then
            compopt -o default
        else
            COMPREPLY+=("$value")
            [[ $value == *[=/] ]] && compopt -o nospace
        fi
    done
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a response complete_ones open_ones described
    local type key descr
    (( ! $+commands[%(prog_name)s] )) && return 1
    response=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \\
        %(complete_var)s=zsh_complete %(prog_name)s)}")
    for type key descr in ${response}; do
        if [[ "$type" == dir ]]; then
            _path_files -/
        elif [[ "$type" == file ]]; then
            _path_files -f
        elif [[ "$descr" != "_" ]]; then
            described+=("$key:$descr")
        elif [[ "$key" == *[=/] ]]; then
            open_ones+=("$key")
        else
            complete_ones+=("$key")
        fi
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#complete_ones )) && compadd -U -V unsorted -a complete_ones
    (( $#open_ones )) && compadd -U -V unsorted -S '' -a open_ones
    return 0
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


class _Bash(BashComplete):
    """Bash, with words that hold an equals sign or a colon."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = "" if line[-1:].isspace() or len(words) < 2 else words.pop()
        self.given = incomplete
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        breaks = os.environ.get("COMP_BREAKS", "")
        begin = max((self.given.rfind(mark) for mark in "=:" if mark in breaks), default=-1) + 1
        value = item.value[begin:] if item.value.startswith(self.given[:begin]) else item.value
        return f"{item.type},{_SPECIAL.sub(_ESCAPED, value)}"


class _Zsh(ZshComplete):
    """Zsh, without a space after what is not complete yet."""

    source_template = _ZSH


_SPECIAL, _ESCAPED = re.compile(r"([\s'\"\\$&;()<>|*?\[\]{}#!`])"), r"\\\1"

add_completion_class(_Bash)
add_completion_class(_Zsh)
