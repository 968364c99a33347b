"""Adds views to a program's text, or removes one. The rest stays as its author wrote it; only MMPL is printed again
when a view is removed.
"""

from dataclasses import replace

from smile import lang
from smile.algebra import mmpl
from smile.algebra.names import name_text
from smile.algebra.printer import print_program
from smile.algebra.trees import walk
from smile.errors import Diagnostic, SmileError, error
from smile.program import CompiledProgram, compile_program
from smile.source import Source, Span


def add_views(compiled: CompiledProgram, text: str) -> Source:
    """The program with the views that `text` defines, and subscriptions to them. Positions of errors refer to
    `text`."""
    added = replace(compiled.source, text=text)
    if not _is_mmpl(added):
        statements, problems = lang.parse(added)
        if problems:
            raise SmileError(problems)
        for statement in statements:
            if not isinstance(statement, lang.CreateView):
                raise error("E093", "only views can be added here", statement.span, "Write CREATE VIEW v AS SELECT …;")
    before = compiled.source.text.rstrip() + "\n\n"
    combined = Source(added.name, before + text.rstrip().removesuffix(";") + ";\n")
    try:
        program = compile_program(combined, compiled.recorded).original
    except SmileError as problem:
        raise SmileError([shift_span(d, len(before)) for d in problem.diagnostics]) from None
    if program.streams != compiled.original.streams:
        raise error("E093", "only views can be added here", hint="Apply a whole program to add streams.")
    existing = {view.name for view in compiled.original.views}
    names = [view.name for view in program.views if view.name not in existing]
    if not names:
        raise error("E093", "the text defines no view", hint="Write CREATE VIEW v AS SELECT …;")
    if not compiled.original.subscriptions:
        return combined  # without SUBSCRIBE, all views are subscribed
    return replace(combined, text=f"{combined.text}SUBSCRIBE {', '.join(map(name_text, names))};\n")


def remove_view(compiled: CompiledProgram, name: str) -> Source:
    """The program without this view; E102 if other views read it, or if no subscribed view would remain."""
    program = compiled.original
    readers = [
        view.name
        for view in program.views
        if any(isinstance(node, mmpl.RelationRef) and node.name == name for node in walk(view.body))
    ]
    if readers:
        raise error("E102", f"{name} cannot be dropped: {', '.join(readers)} reads it", hint="Drop that first.")
    remaining = tuple(v for v in program.views if v.name != name)
    subscriptions = tuple(s for s in program.subscriptions if s != name)
    if not remaining or (program.subscriptions and not subscriptions):
        raise error("E102", f"{name} is the last view with a subscription", hint="Apply another program instead.")
    if _is_mmpl(compiled.source):
        return replace(compiled.source, text=print_program(mmpl.Program(program.streams, remaining, subscriptions)))
    return replace(compiled.source, text=_remove_view_text(compiled.source, name))


def _remove_view_text(source: Source, name: str) -> str:
    """The text without the view's definition, and without its name in SUBSCRIBE statements."""
    spans: list[Span] = []
    for statement in lang.parse(source)[0]:
        if isinstance(statement, lang.CreateView) and _is_same_name(statement.name, name):
            spans.append(_with_semicolon(source.text, statement.span))
        elif isinstance(statement, lang.Subscribe):
            remaining = [n for n in statement.names if not _is_same_name(n, name)]
            if not remaining:
                spans.append(_with_semicolon(source.text, statement.span))
            for i, identifier in enumerate(statement.names if remaining else ()):
                if _is_same_name(identifier, name):
                    names = statement.names
                    spans.append(
                        Span(identifier.span.start, names[i + 1].span.start)
                        if i + 1 < len(names)
                        else Span(remaining[-1].span.end, identifier.span.end)
                    )
    text = source.text
    for span in sorted(spans, key=lambda s: -s.start):
        text = text[: span.start] + text[span.end :]
    return text


def _is_same_name(identifier: lang.Name, name: str) -> bool:
    return identifier.text == name or (not identifier.quoted and identifier.text.casefold() == name.casefold())


def _with_semicolon(text: str, span: Span) -> Span:
    end = text.find(";", span.end)
    only_spaces = end >= 0 and not text[span.end : end].strip()
    return Span(span.start, end + 1 if only_spaces else span.end)


def _is_mmpl(source: Source) -> bool:
    return source.name.lower().endswith(".mmpl")


def shift_span(diagnostic: Diagnostic, offset: int) -> Diagnostic:
    """The diagnostic with its position in the added text, or without one if it is not there."""
    span = diagnostic.span
    if span is None or span.start < offset:
        return replace(diagnostic, span=None)
    return replace(diagnostic, span=Span(span.start - offset, span.end - offset))
