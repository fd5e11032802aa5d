"""Prepared tasks, and the training loop of networks: trainer, callbacks, checkpoints."""
