"""The network: rows in, messages by node and by edge, predictions out."""
