"""Connectors: sources whose events are logged once, and sinks that are kept equal to a view."""
