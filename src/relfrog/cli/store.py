"""The command on what was prepared: list, verify and remove parts of the store."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relfrog.cli.command import Command, print_json
from relfrog.cli.terminal import table

if TYPE_CHECKING:
    from relfrog.store.parts import Part

__all__ = ["STORE_COMMANDS"]


@click.command("store", cls=Command, example="relfrog store list")
@click.argument("action", type=click.Choice(["list", "verify", "remove"]), default="list")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="With remove: all parts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def store_command(action: str, name: str | None, everything: bool, as_json: bool) -> None:
    """List, verify or remove what was prepared of databases.

    What a database is to a model (its graph, encoded columns, labels) is prepared once, and kept
    in the folder that RELFROG_CACHE names, by default in the platform's cache folder. Parts are
    named by the content of the files that they are made of, so they are never stale; removing them
    costs the time to prepare them again. Beyond RELFROG_CACHE_GB (50) those used longest ago go.

    NAME is the name of a part, or the name of a dataset for all of its parts.
    """
    from relfrog.errors import StoreError, UsageError
    from relfrog.store.location import size_limit
    from relfrog.store.parts import open_store

    store = open_store()
    chosen = [p for p in store.parts() if name is None or p.name == name or p.belongs_to(name)]
    if name is not None and not chosen:
        raise StoreError(f"{store.folder} has nothing of {name}. See: relfrog store list")
    if action == "remove":
        if name is None and not everything:
            raise UsageError("name what to remove, or remove all: relfrog store remove --all")
        for part in chosen:
            store.remove(part.name)
        if everything:  # of predictions that were interrupted
            shutil.rmtree(store.folder / "predictions", ignore_errors=True)
    wrong = (
        {p.name: f for p in chosen if (f := store.damaged(p.name))} if action == "verify" else {}
    )
    if as_json:
        print_json(
            {
                "folder": str(store.folder), "limit": size_limit(), "action": action,
                "bytes": sum(part.bytes for part in chosen),
                "parts": [{**vars(part), "damaged": wrong.get(part.name, [])} for part in chosen],
            }
        )  # fmt: skip
    elif action == "remove":
        total = _size(sum(part.bytes for part in chosen))
        click.echo(f"Removed {len(chosen):,} parts, {total}, from {store.folder}.")
    elif action == "list":
        click.echo(_listed(chosen, store.folder, size_limit()))
    elif not wrong:
        click.echo(f"All {len(chosen):,} parts in {store.folder} are as they were written.")
    if wrong:
        names = ", ".join(f"{part} ({', '.join(files)})" for part, files in wrong.items())
        raise StoreError(
            f"{len(wrong):,} of {len(chosen):,} parts are damaged: {names}. Remove them; they are "
            "made again when they are needed: relfrog store remove NAME"
        )


def _listed(parts: list[Part], folder: Path, limit: int) -> str:
    """Parts for the eye, the one used last first."""
    total = _size(sum(part.bytes for part in parts))
    if not parts:
        return f"{folder}: nothing is prepared yet."
    rows = [
        [part.about, part.kind, _size(part.bytes),
         f"{datetime.fromtimestamp(part.used):%Y-%m-%d %H:%M}", part.name]
        for part in parts
    ]  # fmt: skip
    shown = table(["of", "what", "size", "used", "name"], rows, right=(2,))
    return f"{folder}: {len(parts):,} parts, {total} of at most {_size(limit)}\n\n{shown}"


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


STORE_COMMANDS = (store_command,)
