"""``python -m relfrog`` is the command ``relfrog``."""

from relfrog.cli import process

process()
