"""A running example: a broker, and people who use it."""
