"""The words of SmileSQL, for editors that show them in colours.

Each is a word that the lexer or the parser expects somewhere; many of them are names elsewhere.
"""

from typing import Final

from smile.lang.dialect import WINDOW_INTERVAL_COUNTS
from smile.lang.formatting import UPPER_CASE_WORDS
from smile.lang.lexer import KEYWORDS, WORD_PAIRS
from smile.lang.nodes import (
    AGGREGATE_SYNONYMS,
    AGGREGATES,
    DERIVED_AGGREGATES,
    NEIGHBOUR_FUNCTIONS,
    PERCENTILES,
    QUANTILE_SYNONYMS,
    RANKING_FUNCTIONS,
    STRING_AGGREGATE_SYNONYMS,
)
from smile.lang.statement_parser import OPTION_VALUES

_WORDS_OF_CLAUSES: Final = frozenset(
    """
    BOTH CHECK CURRENT DAY DEFAULT DESCRIPTOR FILE FIRST FOLLOWING GROUPS HOME HOUR IF INTERVAL KEY LAST LEADING
    MERGE MINUTE MONTH NEXT NULLS ONLY PRECEDING PRIMARY REFERENCES ROW SECOND SILENCE STATIC SUBSCRIPTIONS TABLE
    ARRAY ARRAY_AGG MEDIAN ORDINALITY TICKS TO TRAILING UNBOUNDED WEEK WITHIN YEAR
    """.split()
)
"""Words that are keywords only at their place."""

SQL_WORDS: Final = frozenset(
    {
        *KEYWORDS,
        *(word for pair in WORD_PAIRS for word in pair),
        *UPPER_CASE_WORDS,
        *WINDOW_INTERVAL_COUNTS,
        *OPTION_VALUES,
        *(value for values in OPTION_VALUES.values() for value in values),
        *AGGREGATES,
        *DERIVED_AGGREGATES,
        *AGGREGATE_SYNONYMS,
        *PERCENTILES,
        *QUANTILE_SYNONYMS,
        *STRING_AGGREGATE_SYNONYMS,
        *NEIGHBOUR_FUNCTIONS,
        *RANKING_FUNCTIONS,
        *_WORDS_OF_CLAUSES,
    }
)
