"""A running example: a broker and simulated users."""
