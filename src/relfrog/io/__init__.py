"""Databases and files: read-only on the way in, all or nothing on the way out."""
