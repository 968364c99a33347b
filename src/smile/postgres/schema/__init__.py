"""What is installed in a database: SQL and PL/pgSQL in the schema `smile`."""
