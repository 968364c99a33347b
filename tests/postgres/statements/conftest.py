"""A real server."""

from tests.postgres.private_server import fixture_server

__all__ = ["fixture_server"]
