"""SMILE: a stateful publish/subscribe system with monotonic knowledge."""

__version__ = "0.1.0"
