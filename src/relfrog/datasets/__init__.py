"""Dataset folders: their tables, tasks, labels and entities, and checks of them."""
