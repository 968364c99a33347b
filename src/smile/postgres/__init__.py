"""PostgreSQL as a publisher and a subscriber with transactions."""
