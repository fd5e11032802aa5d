"""Columns as tensors, with types and statistics from rows before a cutoff."""
