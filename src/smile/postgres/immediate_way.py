"""The choice of how the server publishes IMMEDIATE."""

from enum import StrEnum


class ImmediateWay(StrEnum):
    auto = "auto"
    dblink = "dblink"
    logical = "logical"
    none = "none"
