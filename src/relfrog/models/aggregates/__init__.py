"""Automatic features for boosted trees: aggregates over the past of each entity."""
