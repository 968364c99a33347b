"""Message brokers beside a PostgreSQL, for comparison: their servers, and clients that do no more than they must."""
