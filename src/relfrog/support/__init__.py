"""Tools that know nothing of databases or learning."""
