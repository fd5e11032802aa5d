"""General-purpose helpers that know nothing about databases or learning."""
