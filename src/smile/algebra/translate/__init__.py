"""Statements of SmileSQL to MMPL. No SQL tree goes further than this folder."""

from smile.algebra.translate.program import translate

__all__ = ["translate"]
