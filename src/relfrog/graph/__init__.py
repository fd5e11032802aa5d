"""A database as pointers between rows; seeds become batches without a future."""
