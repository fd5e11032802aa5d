"""The sections of a report, one module each: a function from the material to HTML."""
