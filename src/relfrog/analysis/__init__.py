"""Questions put to a finished run."""
