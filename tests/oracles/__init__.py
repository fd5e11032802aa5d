"""Slow, plain versions of what must be fast, and databases to compare them on."""
