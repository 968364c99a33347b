"""Translates SmileSQL statements to MMPL. SQL syntax trees are not used outside of this folder and `lang`."""

from smile.translate.missing_imports import broken_relations, left_out_relations, unrecorded_imports
from smile.translate.program import translate
from smile.translate.unmatched_rows import unmatched_rows_warnings

__all__ = ["broken_relations", "left_out_relations", "translate", "unmatched_rows_warnings", "unrecorded_imports"]
