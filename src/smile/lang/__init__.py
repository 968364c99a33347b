"""Text to statements, and back. Nothing here knows what a name means."""

from smile.lang.nodes import Best, Latest, NestedGroup, Silence, StreamFunction
from smile.lang.parser import parse, unread_names
from smile.lang.printer import print_expression, print_statement, print_statements
from smile.lang.spans import span_of
from smile.lang.statements import ColumnDecl, CreateDomain, CreateStream, CreateView, Name, Statement, Subscribe

__all__ = [
    "Best",
    "ColumnDecl",
    "CreateDomain",
    "CreateStream",
    "CreateView",
    "Latest",
    "Name",
    "NestedGroup",
    "Silence",
    "Statement",
    "StreamFunction",
    "Subscribe",
    "parse",
    "print_expression",
    "print_statement",
    "print_statements",
    "span_of",
    "unread_names",
]
