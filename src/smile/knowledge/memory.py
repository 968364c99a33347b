"""What each transform must remember, and until when. A transform that is not mentioned remembers nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smile.algebra import mmpl, trees
from smile.algebra.coercions import interval_text
from smile.algebra.heading import whole_key_equated
from smile.knowledge.aggregate_types import values_of
from smile.knowledge.analysis import Analysis
from smile.knowledge.join_types import match_ties
from smile.knowledge.seals import Seal
from smile.knowledge.types import RelationType


@dataclass(frozen=True)
class Endless:
    """The column whose values pile up, why none of them can be dropped, and what would change that."""

    column: str
    why: str
    remedy: str


@dataclass(frozen=True)
class Memory:
    """`endless` is None if the state is bounded by live data, or by what is remembered elsewhere."""

    what: str
    until: str
    endless: Endless | None = None


class Memories:
    def __init__(self, program: mmpl.Program, analysis: Analysis) -> None:
        self.analysis = analysis
        self.bodies = {v.name: v.body for v in program.views}
        self.subscribed = {self.bodies[n] for n in program.subscriptions if n in self.bodies}
        self.readers: dict[mmpl.Rel, list[mmpl.Rel]] = {}
        for view in program.views:
            for node in trees.walk(view.body):
                for source in trees.inputs_of(node):
                    self.readers.setdefault(self._body(source), []).append(node)

    def _body(self, rel: mmpl.Rel) -> mmpl.Rel:
        while isinstance(rel, mmpl.Ref) and rel.name in self.bodies:
            rel = self.bodies[rel.name]
        return rel

    def of(self, rel: mmpl.Rel) -> list[Memory]:
        match rel:
            case mmpl.Summarize():
                return [self._groups(rel, rel.per, _accumulator(rel, self.analysis.of(rel.input)))]
            case mmpl.Distinct():
                return [self._groups(rel, self.analysis.of(rel).heading.key, "a count of the rows")]
            case mmpl.Best():
                return [self._best(rel)]
            case mmpl.Join():
                return self._join(rel)
            case mmpl.Asof():
                return self._asof(rel)
            case mmpl.Over():
                return [self._over(rel)]
            case mmpl.Window(kind="last"):
                return [Memory("each row", f"the horizon reaches {rel.on} + {interval_text(rel.size)}")]
            case mmpl.Silence():
                per = f" of each {_columns(rel.per)}" if rel.per else ""
                return [
                    Memory(f"the last row{per}", f"the horizon reaches {rel.tick} + {interval_text(rel.longer_than)}")
                ]
        return []

    # ── groups ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _groups(self, rel: mmpl.Rel, per: tuple[str, ...], what: str) -> Memory:
        if not per:
            return Memory(f"{what}, once", "the end")
        what = f"{what} for each {_columns(per)}"
        group = self.analysis.of(rel)
        if not any(s.is_never for s in group.seals.values()):
            return Memory(what, _sealed(group.seals))
        source = trees.inputs_of(rel)[0]
        if self.analysis.of(source).mask.falls_for_good:
            return Memory(what, "its last member is hidden for good")
        hidden = self._hidden(rel, spent=False)
        if hidden is not None:
            return Memory(what, hidden)
        endless = None if self._is_grouped(source) else self._endless(group, per, _never(group.seals))
        return Memory(what, "the end", endless)

    def _is_grouped(self, rel: mmpl.Rel) -> bool:
        """Whether its rows are groups of another transform's: then there are no more of them than that remembers."""
        rel = self._body(rel)
        while isinstance(rel, mmpl.Restrict | mmpl.Project | mmpl.Extend | mmpl.Rename | mmpl.Best):
            rel = self._body(rel.input)
        return isinstance(rel, mmpl.Summarize | mmpl.Distinct)

    def _hidden(self, rel: mmpl.Rel, spent: bool) -> str | None:
        """What hides every row that a row of `rel` contributes to, for good; None if something may still show it.

        `spent`: the row cannot come again once it is forgotten. A group alone can, with its next member, and would
        start from nothing; one that is joined to an event cannot, since there is no second event of that tick.
        """
        if rel in self.subscribed:
            return None
        hiders = []
        for reader in self.readers.get(rel, []):
            found = self._hider(rel, reader, spent)
            if found is None:
                return None
            hiders.append(found)
        return " and ".join(dict.fromkeys(hiders)) if hiders else None

    def _hider(self, rel: mmpl.Rel, reader: mmpl.Rel, spent: bool) -> str | None:
        if spent and isinstance(reader, mmpl.Restrict) and self.analysis.of(reader).mask.falls_for_good:
            return f"{self._name(reader)} hides the row for good"
        if isinstance(reader, mmpl.Restrict | mmpl.Project | mmpl.Extend | mmpl.Rename):
            return self._hidden(reader, spent)
        if isinstance(reader, mmpl.Join) and reader.kind in ("inner", "left"):
            on_right = self._body(reader.right) == rel
            other = self.analysis.of(reader.left if on_right else reader.right)
            # Only a row that can have but one partner is spent when that partner is.
            if whole_key_equated(other.heading, [a if on_right else b for a, b in reader.on]):
                return self._hidden(reader, spent or other.is_history)
        return None

    def _name(self, rel: mmpl.Rel) -> str:
        """The nearest view downstream, which is what the user knows."""
        seen = rel
        while seen not in self.bodies.values():
            seen = self.readers[seen][0]
        return next(n for n, b in self.bodies.items() if b == seen)

    def _endless(self, type_: RelationType, columns: Sequence[str], stream: str) -> Endless | None:
        for column in columns:
            if not values_of(type_.columns[column]).is_finite:
                why = f"{stream} may have one more event for any {column} at any time"
                remedy = f"Group by a window as well, give {column} a domain with bounds, or use LAST"
                return Endless(column, why, remedy)
        return None

    def _best(self, rel: mmpl.Best) -> Memory:
        source, best = self.analysis.of(rel.input), self.analysis.of(rel)
        per = f" of each {_columns(rel.per)}" if rel.per else ""
        if best.mask.falls_for_good and source.never_leaves:
            sealed = not any(s.is_never for s in best.seals.values())
            endless = None if sealed else self._endless(source, rel.per, _never(best.seals))
            return Memory(f"the best {rel.k} rows{per}", _sealed(best.seals) if sealed else "the end", endless)
        if source.mask.falls_for_good:
            return Memory(f"each row{per}", "it is hidden for good")
        endless = None if self._is_grouped(rel.input) else self._endless(source, source.heading.key, _never(best.seals))
        return Memory(f"each row{per}", "the end", endless)

    # ── joins ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _join(self, rel: mmpl.Join) -> list[Memory]:
        left, right = self.analysis.of(rel.left), self.analysis.of(rel.right)
        memories = [self._side(rel, rel.left, left, right, [a for a, _ in rel.on])]
        if not isinstance(self._body(_unnamed(rel.right)), mmpl.Summarize):
            memories.append(self._side(rel, rel.right, right, left, [b for _, b in rel.on]))
        return memories

    def _side(
        self, rel: mmpl.Join, side: mmpl.Rel, own: RelationType, other: RelationType, joined: list[str]
    ) -> Memory:
        """Rows of one side, until no row of the other can meet them any more."""
        read = _unnamed(side)
        name = read.name if isinstance(read, mmpl.Ref) else f"the {'left' if side is rel.left else 'right'} side"
        what = f"each row of {name}" + (f" by {_columns(joined)}" if joined else "")
        left, right = (own, other) if side is rel.left else (other, own)
        fixed = [c for c, t in own.columns.items() if not t.evolves]
        ties = match_ties(rel, left, right)
        meetings = {s: ties.express(seal, fixed) for s, seal in other.seals.items()}
        if not any(s.is_never for s in meetings.values()):
            return Memory(what, _sealed(meetings))
        if own.mask.falls_for_good:
            return Memory(what, "it is hidden for good")
        result = self.analysis.of(rel)
        if side is rel.left and result.mask.falls_for_good and result.heading.key == own.heading.key:
            return Memory(what, "it is hidden for good")
        if result.heading.key == own.heading.key:
            hidden = self._hidden(rel, spent=True)
            if hidden is not None:
                return Memory(what, hidden)
        endless = None if self._is_grouped(side) else self._endless(own, own.heading.key, "")
        if endless is not None:
            why = f"an event of {_never(meetings)} can meet it at any later tick"
            remedy = "Bound the distance of the ticks (… AND p <= o + INTERVAL '10' MINUTE), or use LAST"
            endless = Endless(endless.column, why, remedy)
        return Memory(what, "the end", endless)

    def _asof(self, rel: mmpl.Asof) -> list[Memory]:
        left, right = self.analysis.of(rel.left), self.analysis.of(rel.right)
        lefts = self._until_sealed("each row of the left side", rel, left)
        per = [b for _, b in rel.on]
        kept = f" for each {_columns(per)}" if per else ""
        what = f"the latest row of the right side{kept}, and those after it"
        return [lefts, Memory(what, "the end", self._endless(right, per, " and ".join(left.seals)))]

    def _over(self, rel: mmpl.Over) -> Memory:
        per = f" of each {_columns(rel.per)}" if rel.per else ""
        source = self.analysis.of(rel.input)
        if any(s.is_never for s in source.seals.values()):
            return self._until_sealed(f"the rows{per}", rel, source)
        if rel.range is not None:
            return Memory(f"the rows{per}", f"the horizon reaches {rel.by} + {interval_text(rel.range)}")
        endless = self._endless(source, rel.per, " and ".join(source.seals))
        return Memory(f"running totals{per}", "the end", endless)

    def _until_sealed(self, what: str, rel: mmpl.Rel, source: RelationType) -> Memory:
        """Rows that are needed as long as anything about the result can change."""
        seals = self.analysis.of(rel).seals
        if not any(s.is_never for s in seals.values()):
            return Memory(what, _sealed(seals))
        return Memory(what, "the end", self._endless(source, source.heading.key, _never(seals)))


def _accumulator(rel: mmpl.Summarize, source: RelationType) -> str:
    functions = {a.function for _, a in rel.aggregates}
    parts = [name for name, _ in rel.aggregates]
    what = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    if "group" in functions or (not source.never_leaves and functions & {"min", "max", "latest"}):
        return f"{what}, with all members,"
    return f"{what}, with the values counted," if "count_distinct" in functions else what


def _unnamed(rel: mmpl.Rel) -> mmpl.Rel:
    """Below what only names and leaves out columns: the rows are the same."""
    while isinstance(rel, mmpl.Project | mmpl.Rename):
        rel = rel.input
    return rel


def _columns(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _never(seals: Mapping[str, Seal]) -> str:
    return next((s for s, seal in seals.items() if seal.is_never), next(iter(seals), ""))


def _sealed(seals: Mapping[str, Seal]) -> str:
    return " and ".join(f"the horizon of {s} reaches {seal}" for s, seal in seals.items())
