"""Questions in words: parsed, checked against a dataset's schema, and compiled to label SQL."""
