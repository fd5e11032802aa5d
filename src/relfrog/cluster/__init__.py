"""Runs work elsewhere: jobs in other processes or on the nodes of a Ray cluster, data copied there.

`ray_cluster` joins or starts Ray. `replica` copies what is named by its content to a node's own
disk. What the work is, the folders after this one say.
"""
