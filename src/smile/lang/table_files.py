"""`CREATE TABLE … AS FILE 'rows.csv'`: the rows of the file, as VALUES in the text of the program.

So a program has all that it says: a broker that it is sent to, or that starts again, needs no file.
"""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from io import StringIO

from smile.errors import did_you_mean, error
from smile.lang.parser import parse
from smile.lang.statements import CreateTable
from smile.source import Source

_WORDS = re.compile(r"\bFILE\s*'", re.IGNORECASE)


def with_rows_of_files(source: Source, read: Callable[[str], str]) -> Source:
    """The program with VALUES in place of files. `read` gives the text of a file, by its name in the program."""
    if not _WORDS.search(source.text):
        return source
    statements, _ = parse(source)
    text = source.text
    for table in reversed([s for s in statements if isinstance(s, CreateTable)]):
        if table.file is not None:
            rows = ", ".join(_rows(table, table.file.path, read(table.file.path)))
            text = f"{text[: table.file.span.start]}VALUES {rows}{text[table.file.span.end :]}"
    return Source(source.name, text)


def _rows(table: CreateTable, path: str, text: str) -> Iterator[str]:
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        names = next(reader, None)
        positions = _positions(table, path, names or [])
        count = 0
        for fields in reader:
            if not fields:
                continue  # a blank line
            if len(fields) != len(positions):
                problem = f"{len(fields)} fields, but the first line has {len(positions)} columns"
                raise error("E215", f"{path}, line {reader.line_num}: {problem}")
            count += 1
            values = dict(zip(positions, fields, strict=True))
            yield f"({', '.join(_literal(values.get(i, '')) for i in range(len(table.columns)))})"
    except csv.Error as problem:
        raise error("E215", f"{path}, line {reader.line_num}: not CSV: {problem}") from None
    if not count:
        raise error("E215", f"{path} has no rows", hint="Its first line has the names of the columns.")


def _positions(table: CreateTable, path: str, names: Sequence[str]) -> list[int]:
    """The column of the table for each column of the file. Columns that the file lacks are NULL."""
    columns = [column.name.text for column in table.columns]
    positions: list[int] = []
    for name in names:
        if name not in columns:
            hint = did_you_mean(name, columns) or f"The table has {', '.join(columns)}."
            raise error("E215", f"{path}: table {table.name} has no column {name[:100]}", hint=hint)
        if columns.index(name) in positions:
            raise error("E215", f"{path}: the column {name} is there twice")
        positions.append(columns.index(name))
    return positions


def _literal(field: str) -> str:
    """A text, which takes the type of its column. An empty field is NULL."""
    quoted = field.replace("'", "''")
    return f"'{quoted}'" if field else "NULL"
