"""Dataset folders in RelBench's format: tables, tasks, labels, entities, and their checks."""
