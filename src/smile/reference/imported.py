"""An imported view: the rows that its definition shows over the history that has arrived with the import.

In a history, the streams that the view is computed from are streams of the import, named by `ImportDef.horizon_name`.
"""

from smile.algebra import mmpl
from smile.analysis.type_analysis import exporting_analysis
from smile.horizons import origin_name
from smile.reference.evaluation import Evaluation
from smile.reference.history import History
from smile.reference.relation import Key, ReferenceRow, Relation


def imported(ev: Evaluation, rel: mmpl.Imported) -> Relation:
    rows = _exporting_evaluation(ev, rel.source).relation(mmpl.RelationRef(rel.source.relation_name))
    return {key: row for key, row in rows.items() if row.is_shown}


def imported_default(ev: Evaluation, rel: mmpl.Imported, key: Key) -> ReferenceRow:
    return _exporting_evaluation(ev, rel.source).default_row(mmpl.RelationRef(rel.source.relation_name), key)


def _exporting_evaluation(ev: Evaluation, import_: mmpl.ImportDef) -> Evaluation:
    if import_ not in ev.exporting:
        program = import_.exporting_program
        history = History.from_lines(program)
        for stream in history.streams:
            name = import_.horizon_name(stream)
            history.events[stream], history.horizons[stream] = ev.history.events[name], ev.history.horizons[name]
            for origin in ev.history.stream_origins(name):
                history.horizons[origin_name(stream, origin)] = ev.history.horizons[origin_name(name, origin)]
        ev.exporting[import_] = type(ev)(program, exporting_analysis(import_), history)
    return ev.exporting[import_]
