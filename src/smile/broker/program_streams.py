"""Adds streams to a program's text. The rest stays as its author wrote it."""

from collections.abc import Sequence
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.printer import print_program
from smile.source import Source


def add_streams(source: Source, streams: Sequence[mmpl.StreamDef]) -> Source:
    """The program with these streams at its end. They are broker-timed, and have columns only. They may have the
    changes of a table."""
    if source.name.lower().endswith(".mmpl"):
        added = print_program(mmpl.Program(tuple(streams), (), ()))
    else:
        added = "".join(f"{_stream_text(stream)};\n" for stream in streams)
    before = source.text.rstrip()
    # A last statement may lack its semicolon, also before a comment.
    return replace(
        source, text=f"{before}\n;\n{added}" if _lacks_semicolon(source) else f"{before}\n\n{added}".lstrip()
    )


def _lacks_semicolon(source: Source) -> bool:
    if source.name.lower().endswith(".mmpl"):
        return False
    lines = [line.partition("--")[0].strip() for line in source.text.splitlines()]
    last = next((line for line in reversed(lines) if line), ";")
    return not last.endswith(";")


def _stream_text(stream: mmpl.StreamDef) -> str:
    columns = [f"{_quote(stream.tick)} TIME KEY", *(f"{_quote(name)} {data}" for name, data in stream.columns)]
    options = " WITH (CHANGES = TABLE)" if stream.is_table else ""
    return f"CREATE STREAM {_quote(stream.name)} ({', '.join(columns)}){options}"


def _quote(name: str) -> str:
    """Any name, also one that is a keyword."""
    return '"' + name.replace('"', '""') + '"'
