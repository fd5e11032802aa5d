"""Build the site from these pages with MkDocs, as `make docs` does.

    python docs/build.py [--out FOLDER]

Strict: a dead link, a missing anchor or a page that the navigation forgets stops the build, and so
does anything that a page would load from another host.
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: What makes the site, and is no part of it.
MAKERS = ("*.py", "*.yml", "_build", "__pycache__")
#: A link to a file of the repository that is no page.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)[^)]*\)")
#: A picture of the repository that lies outside these pages.
_PICTURE = re.compile(r"(!\[[^\]]*\]\()\.\./([^)#\s]+\.(?:svg|png))\)")
#: What a browser loads by itself: scripts, pictures, style sheets, frames; not links to follow.
_HOST = r"""["']?\s*((?:https?:)?//[^"'>)\s]+)"""
_LOADS = re.compile(
    rf"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc(?:set)?={_HOST}"""
    rf"""|<link\b(?![^>]*rel=["']?(?:canonical|alternate))[^>]*?\bhref={_HOST}"""
    rf"""|url\(\s*{_HOST}|@import\s+{_HOST}""",
    re.I,
)


def existing(nav: list[Any], folder: Path) -> list[Any]:
    """The navigation without pages that are not there."""
    found: list[Any] = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            inner = existing(target, folder)
            found += [{title: inner}] if inner else []
        elif (folder / target).is_file():
            found.append(entry)
    return found


def inside(text: str) -> str:
    """A page whose links to files of the repository are their names: the site has only pages."""

    def name(link: re.Match[str]) -> str:
        if not (HERE.parent / link[2]).exists():
            raise SystemExit(f"A link leads nowhere: {link[0]}")
        return f"{link[1]} (`{link[2]}`)" if link[1].strip("`") != link[2] else f"`{link[2]}`"

    return _OUTSIDE.sub(name, text)


def with_pictures(text: str, pages: Path) -> str:
    """A page whose pictures lie beside it."""

    def beside(link: re.Match[str]) -> str:
        source, target = HERE.parent / link[2], pages / link[2]
        if not source.is_file():
            raise SystemExit(f"A picture is missing: {link[2]}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        return f"{link[1]}{link[2]})"

    return _PICTURE.sub(beside, text)


def foreign(site: Path) -> list[str]:
    """Everything that the site would load from another host."""
    found = []
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg")]):
        for match in _LOADS.finditer(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: {match[0]}")
    return found


def build(out: Path) -> Path:
    """Build the site into a folder, which is replaced."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    with tempfile.TemporaryDirectory() as temporary:
        # MkDocs refuses to write into the folder it reads: it reads a copy.
        pages = Path(temporary) / "pages"
        shutil.copytree(HERE, pages, ignore=shutil.ignore_patterns(*MAKERS))
        for page in pages.rglob("*.md"):
            text = with_pictures(page.read_text(encoding="utf-8"), pages)
            page.write_text(inside(text), encoding="utf-8")
        config = load_config(
            str(HERE / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(out), strict=True
        )
        config.nav = existing(config.nav or [], pages)
        config.plugins.run_event("startup", command="build", dirty=False)
        try:
            build_site(config)
        finally:
            config.plugins.run_event("shutdown")
    return out


def main() -> None:
    """Build, and say what is wrong."""
    parser = argparse.ArgumentParser(description="Build the documentation.")
    parser.add_argument("--out", type=Path, default=HERE / "_build", help="where to")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")  # what is wrong, and no more
    site = build(parser.parse_args().out.resolve())
    if loaded := foreign(site):
        sys.exit("Loaded from other hosts:\n  " + "\n  ".join(loaded))
    print(f"Built: {site / 'index.html'}")


if __name__ == "__main__":
    main()
