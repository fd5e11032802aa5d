"""Columns as tensors, fitted on rows before a cut."""
