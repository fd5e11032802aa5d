"""The network, from links between rows to heads."""
