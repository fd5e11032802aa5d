"""Keeps what is computed from files, named by their content: never stale, never made twice.

`file_table` reads tables where they lie. `parts` keeps what was made of them in a cache folder:
each part a folder of plain arrays, complete or not there. `fingerprint` says what is in a file.
"""
