"""Makes runs, and opens them."""
