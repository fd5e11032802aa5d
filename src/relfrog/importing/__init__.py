"""A source becomes a dataset folder, every decision with its evidence."""
