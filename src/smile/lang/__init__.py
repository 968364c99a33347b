"""Parses SmileSQL text into statements and prints statements as text. Names are not resolved here."""

from smile.lang.allowlist import OVER_HINT
from smile.lang.formatting import format_program
from smile.lang.frames import frame_positions
from smile.lang.keywords import SQL_WORDS
from smile.lang.lexer import Lexeme, read_lexemes
from smile.lang.nodes import (
    AGGREGATES,
    DERIVED_AGGREGATES,
    NEIGHBOUR_FUNCTIONS,
    PERCENTILES,
    QUANTILE_SYNONYMS,
    RANKING_FUNCTIONS,
    STRING_AGGREGATE_SYNONYMS,
    ArrayAggregate,
    BestClause,
    Earliest,
    Latest,
    NestedGroup,
    Percentile,
    PercentileCont,
    SilenceCall,
    StreamFunction,
    StringAggregate,
)
from smile.lang.parser import parse, parse_condition, parse_filter, unparsed_names
from smile.lang.printer import print_expression, print_statement, print_statements
from smile.lang.spans import span_of, widen_span
from smile.lang.statements import (
    AdvertiseProducer,
    ColumnDecl,
    CreateDomain,
    CreateRepublisher,
    CreateStream,
    CreateTable,
    CreateView,
    ImportRelation,
    Name,
    Statement,
    Subscribe,
    relations_named,
)
from smile.lang.table_files import with_rows_of_files

__all__ = [
    "AGGREGATES",
    "DERIVED_AGGREGATES",
    "NEIGHBOUR_FUNCTIONS",
    "OVER_HINT",
    "PERCENTILES",
    "QUANTILE_SYNONYMS",
    "RANKING_FUNCTIONS",
    "SQL_WORDS",
    "STRING_AGGREGATE_SYNONYMS",
    "AdvertiseProducer",
    "ArrayAggregate",
    "BestClause",
    "ColumnDecl",
    "CreateDomain",
    "CreateRepublisher",
    "CreateStream",
    "CreateTable",
    "CreateView",
    "Earliest",
    "ImportRelation",
    "Latest",
    "Lexeme",
    "Name",
    "NestedGroup",
    "Percentile",
    "PercentileCont",
    "SilenceCall",
    "Statement",
    "StreamFunction",
    "StringAggregate",
    "Subscribe",
    "format_program",
    "frame_positions",
    "parse",
    "parse_condition",
    "parse_filter",
    "print_expression",
    "print_statement",
    "print_statements",
    "read_lexemes",
    "relations_named",
    "span_of",
    "unparsed_names",
    "widen_span",
    "with_rows_of_files",
]
