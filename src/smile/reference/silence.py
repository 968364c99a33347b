"""SILENCE: whether no row of the same group follows within some time."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.knowledge.values.mask import MAY_APPEAR, F, T, all_of
from smile.reference.evaluation import Evaluation
from smile.reference.history import END
from smile.reference.relation import Relation, not_distinct_mask


def silence(ev: Evaluation, rel: mmpl.Silence) -> Relation:
    """Adds the Boolean column: permanently false once a row breaks the silence, permanently true once the horizon
    reaches its end, and false until then."""
    source = ev.relation(rel.input)
    horizon = min((ev.history.horizons[s] for s in ev.relation_type(rel.input).seals), default=END)
    result = {}
    for key, row in source.items():
        tick = row.cells[rel.tick].now
        silence_end = min(tick + rel.longer_than, END)
        same_group = [
            other
            for other in source.values()
            if other.mask.is_permanently_shown
            and all_of(*(not_distinct_mask(row.cells[c], other.cells[c]) for c in rel.per)).is_permanently_shown
        ]
        is_broken = any(tick < other.cells[rel.tick].now <= silence_end for other in same_group)
        quiet = F if is_broken else T if horizon >= silence_end else MAY_APPEAR
        result[key] = replace(row, cells={**row.cells, rel.name: quiet})
    return result
