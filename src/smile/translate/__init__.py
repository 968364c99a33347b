"""Translates SmileSQL statements to MMPL. SQL syntax trees are not used outside of this folder and `lang`."""

from smile.translate.program import translate

__all__ = ["translate"]
