"""Parses SmileSQL text into statements and prints statements as text. Names are not resolved here."""

from smile.lang.nodes import AGGREGATES, BestClause, Earliest, Latest, NestedGroup, SilenceCall, StreamFunction
from smile.lang.parser import parse, unparsed_names
from smile.lang.printer import print_expression, print_statement, print_statements
from smile.lang.spans import span_of
from smile.lang.statements import (
    ColumnDecl,
    CreateDomain,
    CreateStream,
    CreateView,
    ImportRelation,
    Name,
    Statement,
    Subscribe,
)

__all__ = [
    "AGGREGATES",
    "BestClause",
    "ColumnDecl",
    "CreateDomain",
    "CreateStream",
    "CreateView",
    "Earliest",
    "ImportRelation",
    "Latest",
    "Name",
    "NestedGroup",
    "SilenceCall",
    "Statement",
    "StreamFunction",
    "Subscribe",
    "parse",
    "print_expression",
    "print_statement",
    "print_statements",
    "span_of",
    "unparsed_names",
]
