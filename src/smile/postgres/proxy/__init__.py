"""A proxy of PostgreSQL's wire protocol that translates publish/subscribe statements, and nothing else."""
