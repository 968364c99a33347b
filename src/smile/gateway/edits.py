"""A program's text with a view more, or one less; everything else in it stays as its author wrote it."""

from dataclasses import replace

from smile import lang
from smile.algebra import mmpl
from smile.algebra.printer import name_text, print_program
from smile.algebra.trees import walk
from smile.errors import Diagnostic, SmileError, error
from smile.program import Compiled, compile_program
from smile.source import Source, Span


def with_views(compiled: Compiled, text: str) -> Source:
    """Also the views that `text` defines, subscribed to like the others. Errors have their places in `text`."""
    own = replace(compiled.source, text=text)
    if not _is_mmpl(own):
        statements, problems = lang.parse(own)
        if problems:
            raise SmileError(problems)
        for statement in statements:
            if not isinstance(statement, lang.CreateView):
                raise error("E093", "here are views only", statement.span, "Write CREATE VIEW v AS SELECT …;")
    before = compiled.source.text.rstrip() + "\n\n"
    longer = Source(own.name, before + text.rstrip().removesuffix(";") + ";\n")
    try:
        made = compile_program(longer).written
    except SmileError as problem:
        raise SmileError([_moved(d, len(before)) for d in problem.diagnostics]) from None
    if made.streams != compiled.written.streams:
        raise error("E093", "here are views only", hint="A stream is added with the whole program.")
    known = {view.name for view in compiled.written.views}
    names = [view.name for view in made.views if view.name not in known]
    if not names:
        raise error("E093", "here is no view", hint="Write CREATE VIEW v AS SELECT …;")
    if not compiled.written.subscriptions:
        return longer  # which is to all of them
    return replace(longer, text=f"{longer.text}SUBSCRIBE {', '.join(map(name_text, names))};\n")


def without_view(compiled: Compiled, name: str) -> Source:
    """E102 if others need it."""
    program = compiled.written
    readers = [
        view.name
        for view in program.views
        if any(isinstance(node, mmpl.Ref) and node.name == name for node in walk(view.body))
    ]
    if readers:
        raise error("E102", f"{name} cannot be dropped: {', '.join(readers)} reads it", hint="Drop that first.")
    left = tuple(v for v in program.views if v.name != name)
    subscriptions = tuple(s for s in program.subscriptions if s != name)
    if not left or (program.subscriptions and not subscriptions):
        raise error("E102", f"{name} is the last view that is subscribed to", hint="Apply another program instead.")
    if _is_mmpl(compiled.source):
        return replace(compiled.source, text=print_program(mmpl.Program(program.streams, left, subscriptions)))
    return replace(compiled.source, text=_cut(compiled.source, name))


def _cut(source: Source, name: str) -> str:
    """Without its definition, and without its name where it is subscribed to."""
    spans: list[Span] = []
    for statement in lang.parse(source)[0]:
        if isinstance(statement, lang.CreateView) and _is(statement.name, name):
            spans.append(_with_semicolon(source.text, statement.span))
        elif isinstance(statement, lang.Subscribe):
            kept = [n for n in statement.names if not _is(n, name)]
            if not kept:
                spans.append(_with_semicolon(source.text, statement.span))
            for i, one in enumerate(statement.names if kept else ()):
                if _is(one, name):
                    others = statement.names
                    spans.append(
                        Span(one.span.start, others[i + 1].span.start)
                        if i + 1 < len(others)
                        else Span(kept[-1].span.end, one.span.end)
                    )
    text = source.text
    for span in sorted(spans, key=lambda s: -s.start):
        text = text[: span.start] + text[span.end :]
    return text


def _is(written: lang.Name, name: str) -> bool:
    return written.text == name or (not written.quoted and written.text.casefold() == name.casefold())


def _with_semicolon(text: str, span: Span) -> Span:
    end = text.find(";", span.end)
    only_spaces = end >= 0 and not text[span.end : end].strip()
    return Span(span.start, end + 1 if only_spaces else span.end)


def _is_mmpl(source: Source) -> bool:
    return source.name.lower().endswith(".mmpl")


def _moved(diagnostic: Diagnostic, by: int) -> Diagnostic:
    """As it is in the text that was added, if it is there."""
    span = diagnostic.span
    if span is None or span.start < by:
        return replace(diagnostic, span=None)
    return replace(diagnostic, span=Span(span.start - by, span.end - by))
