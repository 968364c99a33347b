"""What became of something that was received from another broker."""

from enum import Enum


class Receipt(Enum):
    APPENDED = "appended to the log"
    REDUNDANT = "dropped: it brings nothing new"
    GAP = "not appended: ask for what is after the horizons that are reached"
    INCOMPARABLE = "not appended: it is ahead in some streams and behind in others"
