"""What models learn from, prepared once, and how a network learns."""
