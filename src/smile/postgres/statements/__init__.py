"""The publish/subscribe statements of PostgreSQL-PS: text → statements → calls of functions."""
