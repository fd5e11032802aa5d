"""Runs work elsewhere: in other processes of this machine, or on the nodes of a Ray cluster.

Jobs (`workers`: `processes` here, Ray's tasks there) and networks that are trained together
(`team`) are behind one interface each. `ray_cluster` joins or starts Ray, and `ray_train` starts
workers there that learn together; `replica` copies what is named by its content to a node's own
disk; `folders` brings results back. What a job does, the folders after this one say.
"""
