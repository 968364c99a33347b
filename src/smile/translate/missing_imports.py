"""The part of a program that can be translated while types of its imports are not recorded yet."""

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from smile import lang
from smile.analysis.recorded_types import BrokenRelation, MissingImport, RecordedTypes
from smile.errors import SmileError
from smile.source import Span
from smile.translate.scope import NameTable


def unrecorded_imports(statements: Sequence[lang.Statement], recorded: RecordedTypes) -> list[lang.ImportRelation]:
    """The imports of which no broker has a recorded type."""
    imports = [statement for statement in statements if isinstance(statement, lang.ImportRelation)]
    return [import_ for import_ in imports if not _is_recorded(import_, recorded)]


def _is_recorded(import_: lang.ImportRelation, recorded: RecordedTypes) -> bool:
    brokers = NameTable(dict.fromkeys(recorded))
    for name in (import_.broker, *import_.other_brokers):
        broker = brokers.find(name.text, name.quoted)
        relations = NameTable(dict.fromkeys(recorded[broker] if broker is not None else ()))
        if relations.find(import_.relation.text, import_.relation.quoted) is not None:
            return True
    return False


def left_out_relations(
    statements: Sequence[lang.Statement], missing: Sequence[lang.ImportRelation], broken: Iterable[str] = ()
) -> Mapping[str, tuple[MissingImport, ...]]:
    """The missing imports, the `broken` relations, and the views that read them, also through other views, each with
    the missing imports that it needs. A view whose column has the name of one of them may be left out too: names are
    not resolved here."""
    left_out: dict[str, tuple[MissingImport, ...]] = dict.fromkeys(broken, ())
    for import_ in missing:
        brokers = tuple(name.text for name in (import_.broker, *import_.other_brokers))
        left_out[import_.name.text] = (MissingImport(import_.relation.text, brokers),)
    views = [statement for statement in statements if isinstance(statement, lang.CreateView)]
    reads = {view.name.text: {i.name.casefold() for i in view.query.find_all(exp.Identifier)} for view in views}
    count = -1
    while count != (count := len(left_out) + sum(map(len, left_out.values()))):
        known = {name.casefold(): imports for name, imports in left_out.items()}
        for view, names in reads.items():
            if found := sorted(names & known.keys()):
                needed = [import_ for name in found for import_ in known[name]]
                left_out[view] = tuple(dict.fromkeys([*left_out.get(view, ()), *needed]))
    return left_out


def broken_relations(statements: Sequence[lang.Statement], problem: SmileError) -> Mapping[str, BrokenRelation]:
    """The imports, and views that need them, whose errors these are. They are the only ones whose errors may be seen
    when a description arrives. Empty if there are others."""
    imports = [statement for statement in statements if isinstance(statement, lang.ImportRelation)]
    needed = left_out_relations(statements, imports)
    by_name = {
        s.name.text: s
        for s in statements
        if isinstance(s, lang.ImportRelation | lang.CreateView) and s.name.text in needed
    }
    found: dict[str, BrokenRelation] = {}
    for diagnostic in problem.diagnostics:
        name = next((n for n, s in by_name.items() if _is_within(diagnostic.span, s.span)), None)
        if name is None:
            return {}
        found.setdefault(name, BrokenRelation(diagnostic, needed[name]))
    return found


def _is_within(span: Span | None, outer: Span) -> bool:
    return span is not None and outer.start <= span.start and span.end <= outer.end
