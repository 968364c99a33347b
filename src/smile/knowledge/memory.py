"""What each transform must remember, and until when. A transform that is not mentioned remembers nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from smile.algebra import mmpl, trees
from smile.algebra.coercions import interval_text
from smile.algebra.heading import whole_key_equated
from smile.algebra.printer import print_expression
from smile.knowledge.aggregate_types import membership, values_of
from smile.knowledge.analysis import Analysis
from smile.knowledge.expression_types import expression_type
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
                return self._groups(rel, rel.per, _names([name for name, _ in rel.aggregates]))
            case mmpl.Distinct():
                return self._groups(rel, self.analysis.of(rel).heading.key, "a count of the rows")
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

    def _groups(self, rel: mmpl.Summarize | mmpl.Distinct, per: tuple[str, ...], what: str) -> list[Memory]:
        source, group = self.analysis.of(rel.input), self.analysis.of(rel)
        if any(source.columns[c].evolves for c in per):
            # A row may be of any group, so what is remembered is rows.
            return [self._rows(f"each row, to group it by {_columns(per)}", rel.input, _never(group.seals))]
        if membership(source, per).single:
            return []
        each = f"for each {_columns(per)}" if per else "once"
        beside = self._beside(rel, source)
        whole = f"{what}, with {beside.what}, {each}" if beside else f"{what} {each}" if per else f"{what}, once"
        if per and not _is_open(group.seals):
            return [Memory(whole, _sealed(group.seals))]
        if per and self._falls(rel.input) and not (beside and beside.endless):
            return [Memory(whole, "its last member is hidden for good")]
        hidden = None if beside else self._hidden(rel, of_group=True)
        if hidden is not None:
            return [Memory(whole, hidden)]
        endless = None if self._is_grouped(rel.input) else self._endless(group, per, _never(group.seals))
        return [Memory(whole, "the end", endless or (beside.endless if beside else None))]

    def _beside(self, rel: mmpl.Summarize | mmpl.Distinct, source: RelationType) -> Memory | None:
        """What is remembered of a group beside one row."""
        aggregates = [a for _, a in rel.aggregates] if isinstance(rel, mmpl.Summarize) else []
        functions = {a.function for a in aggregates}
        stream = _never(self.analysis.of(rel).seals)
        if "group" in functions:
            # A member that is hidden for good is told from one nobody has heard of.
            return Memory("all members", "the end", self._endless_rows(rel.input, stream))
        members = self._rows("all members", rel.input, stream)
        leaving = not source.never_leaves and functions & {"min", "max", "latest"}
        if leaving and members.endless is not None:
            return members
        for wanted in aggregates:
            if wanted.function == "count_distinct" and wanted.arg is not None:
                endless = None if self._falls(rel.input) else self._values(wanted.arg, source, stream)
                found = Memory("the values counted", "the end", endless)
                return replace(found, what="all members") if leaving else found
        return members if leaving else None

    def _values(self, arg: mmpl.Expr, source: RelationType, stream: str) -> Endless | None:
        if values_of(expression_type(arg, source.columns)).is_finite:
            return None
        value = print_expression(arg)
        why = f"{stream} may have one more event with another {value} at any time"
        return Endless(value, why, f"Group by a window as well, give {value} a domain with bounds, or use LAST")

    def _is_grouped(self, rel: mmpl.Rel) -> bool:
        """Whether its rows are groups that another transform keeps for good: then there are no more than it has."""
        rel = self._body(rel)
        while isinstance(rel, mmpl.Restrict | mmpl.Project | mmpl.Extend | mmpl.Rename | mmpl.Best):
            rel = self._body(rel.input)
        if not isinstance(rel, mmpl.Summarize | mmpl.Distinct):
            return False
        return all(m.until == "the end" for m in self.of(rel))

    def _rows(self, what: str, rel: mmpl.Rel, stream: str) -> Memory:
        """Rows of a relation that are needed as long as they may be shown."""
        if self._falls(rel):
            return Memory(what, "it is hidden for good")
        return Memory(what, "the end", self._endless_rows(rel, stream))

    def _endless_rows(self, rel: mmpl.Rel, stream: str) -> Endless | None:
        type_ = self.analysis.of(rel)
        return None if self._is_grouped(rel) else self._endless(type_, type_.heading.key, stream)

    def _falls(self, rel: mmpl.Rel) -> bool:
        """Whether a row is live until it is hidden for good: none is shown for good."""
        mask = self.analysis.of(rel).mask
        return mask.falls_for_good and (not mask.final_true or self._passes(rel))

    def _passes(self, rel: mmpl.Rel) -> bool:
        """Whether every row leaves in time."""
        rel = self._body(rel)
        if isinstance(rel, mmpl.Window) and rel.kind == "last":
            return True
        if isinstance(rel, mmpl.Summarize | mmpl.Distinct | mmpl.Ref):
            return False
        sources = trees.inputs_of(rel)
        if isinstance(rel, mmpl.Union | mmpl.Merge):
            return all(self._passes(source) for source in sources)
        either = isinstance(rel, mmpl.Join) and rel.kind == "inner"
        if isinstance(rel, mmpl.Join) and rel.kind in ("right", "full"):
            return False
        return any(self._passes(source) for source in (sources if either else sources[:1]))

    # ── rows that a restriction hides for good ──────────────────────────────────────────────────────────────────────

    def _hidden(self, rel: mmpl.Rel, of_group: bool = False) -> str | None:
        """The restriction that hides all that can come of a row of `rel` for good, so that the row is forgotten.

        A row of a join is one row of its left side, which is a history: there is no second event of that tick. Of a
        group the same holds if it is joined to one such row; alone it may come again, with its next member.
        """
        readers = list(dict.fromkeys(self.readers.get(rel, [])))
        if rel in self.subscribed or len(readers) != 1:
            return None
        (reader,) = readers
        match reader:
            case mmpl.Restrict() if not of_group and self._falls(reader):
                return f"{self._name(reader)} hides the row for good"
            case mmpl.Restrict() | mmpl.Project() | mmpl.Extend() | mmpl.Rename():
                return self._hidden(reader, of_group)
            case mmpl.Join() if of_group and self._is_only_of_one(rel, reader):
                return self._hidden(reader)
        return None

    def _is_only_of_one(self, group: mmpl.Rel, join: mmpl.Join) -> bool:
        left = self.analysis.of(join.left)
        on_key = {a for a, _ in join.on} == set(left.heading.key)
        return on_key and self._keeps_left(join) and self._body(join.left) != group

    def _keeps_left(self, join: mmpl.Join) -> bool:
        """Whether each row of the join is one of its left side, which comes but once."""
        left, right = self.analysis.of(join.left), self.analysis.of(join.right)
        whole = whole_key_equated(right.heading, [b for _, b in join.on])
        return join.kind in ("inner", "left") and left.is_history and whole

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
        if not _is_open(best.seals):
            return Memory(f"each row{per}", _sealed(best.seals))
        ranked = f"the best {rel.k} rows{per}"
        endless = self._endless(source, rel.per, _never(best.seals))
        if best.mask.falls_for_good and source.never_leaves:
            return Memory(ranked, "the end", endless)
        if not _is_open(source.seals) and not self._falls(rel.input):
            # A sealed row is final: it is among the best, or out.
            return Memory(f"{ranked}, and those that may change", "the end", endless)
        return self._rows(f"each row{per}", rel.input, _never(best.seals))

    # ── joins ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _join(self, rel: mmpl.Join) -> list[Memory]:
        memories = [self._side(rel, rel.left, rel.right, [a for a, _ in rel.on])]
        if rel.kind in ("semi", "anti", "match") and self._is_counted(rel):
            return [*memories, self._counts(rel)]
        read = self._body(rel.right)
        while isinstance(read, mmpl.Project | mmpl.Rename):
            read = self._body(read.input)
        if isinstance(read, mmpl.Summarize) and self._answers(rel, rel.right):
            kept = self.of(read)
            if all(m.until == "the end" or _is_open(self.analysis.of(read).seals) for m in kept) and kept:
                # One row a group, as long as the group itself.
                return memories
        return [*memories, self._side(rel, rel.right, rel.left, [b for _, b in rel.on])]

    def _side(self, rel: mmpl.Join, side: mmpl.Rel, others: mmpl.Rel, joined: list[str]) -> Memory:
        """Rows of one side, until no row of the other can meet them any more."""
        own, other = self.analysis.of(side), self.analysis.of(others)
        what = f"each row of {self._side_name(rel, side)}" + (f" by {_columns(joined)}" if joined else "")
        fixed = [c for c, t in own.columns.items() if not t.evolves]
        ties = match_ties(rel, self.analysis.of(rel.left), self.analysis.of(rel.right))
        ends = {s: ties.express(seal, fixed) for s, seal in other.seals.items()}
        answers = self._answers(rel, side)
        if answers:
            # What is asked for is needed until it is final, and nobody can ask for it any more.
            for stream, seal in own.seals.items():
                mine = seal if {c for c, _ in seal.at} <= {*fixed, ""} else Seal.NEVER
                ends[stream] = ends[stream].latest(mine) if stream in ends else mine
        if not _is_open(ends):
            return Memory(what, _sealed(ends))
        told_gone = rel.kind != "inner" and whole_key_equated(own.heading, joined)
        if self._falls(side) and not (answers and told_gone):
            return Memory(what, "it is hidden for good")
        if side is rel.left:
            if rel.kind in ("semi", "anti") and self.analysis.of(rel).mask.falls_for_good:
                return Memory(what, "it is hidden for good")
            hidden = self._hidden(rel) if self._keeps_left(rel) else None
            if hidden is not None:
                return Memory(what, hidden)
        endless = None if self._is_grouped(side) else self._endless(own, own.heading.key, "")
        if endless is not None:
            why = f"an event of {_never(ends)} can {'change' if answers else 'meet'} it at any later tick"
            remedy = "Bound the distance of the ticks (… AND p <= o + INTERVAL '10' MINUTE), or use LAST"
            endless = Endless(endless.column, why, remedy)
        return Memory(what, "the end", endless)

    def _side_name(self, rel: mmpl.Join, side: mmpl.Rel) -> str:
        read = _unnamed(side)
        return read.name if isinstance(read, mmpl.Ref) else f"the {'left' if side is rel.left else 'right'} side"

    def _answers(self, rel: mmpl.Join, side: mmpl.Rel) -> bool:
        """Whether the other side's rows each ask for one row of this side, by its key, and are there without it too."""
        wholes = {}
        for which, at in ((rel.left, 0), (rel.right, 1)):
            heading = self.analysis.of(which).heading
            whole = whole_key_equated(heading, [pair[at] for pair in rel.on])
            wholes[at] = (whole, whole and heading.total)
        whole, total = wholes[0 if side is rel.left else 1]
        if rel.kind == "full":
            return wholes[0][0] and wholes[1][0]
        return (rel.kind == "inner" and total) or (rel.kind == ("right" if side is rel.left else "left") and whole)

    def _is_counted(self, rel: mmpl.Join) -> bool:
        """Whether a test depends on nothing but fixed values that are equated: then no right row is remembered."""
        left, right = self.analysis.of(rel.left), self.analysis.of(rel.right)
        fixed = not any(left.columns[a].evolves or right.columns[b].evolves for a, b in rel.on)
        asked = {b for _, b in rel.on}
        key_only = not whole_key_equated(right.heading, asked) or asked == set(right.heading.key)
        return rel.when is None and not rel.null_aware and fixed and key_only

    def _counts(self, rel: mmpl.Join) -> Memory:
        left, right = self.analysis.of(rel.left), self.analysis.of(rel.right)
        on = list(dict.fromkeys(b for _, b in rel.on))
        what = f"a count of the rows of {self._side_name(rel, rel.right)}" + (f" for each {_columns(on)}" if on else "")
        ties = match_ties(rel, left, right)
        ends = {s: ties.express(seal, on) for s, seal in left.seals.items()}
        if not _is_open(ends):
            return Memory(what, _sealed(ends))
        if self._falls(rel.right) and not whole_key_equated(right.heading, on):
            return Memory(what, "the last of them is hidden for good")
        endless = None if self._is_grouped(rel.right) else self._endless(right, on, "")
        if endless is not None:
            why = f"an event of {_never(ends)} can ask for it at any later tick"
            remedy = "Bound the distance of the ticks (… AND p <= o + INTERVAL '10' MINUTE), or use LAST"
            endless = Endless(endless.column, why, remedy)
        return Memory(what, "the end", endless)

    def _asof(self, rel: mmpl.Asof) -> list[Memory]:
        left, right = self.analysis.of(rel.left), self.analysis.of(rel.right)
        lefts = self._until_sealed("each row of the left side", rel, left)
        per = [b for _, b in rel.on]
        stream = " and ".join(left.seals)
        moving = any(left.columns[a].evolves or right.columns[b].evolves for a, b in (*rel.on, rel.at))
        late = any(left.ties.express(seal, [rel.at[0]]).is_never for seal in left.seals.values())
        if moving or late or _is_open(right.seals) or self._falls(rel.right):
            # No right row is known to hide those before it from all left rows to come.
            return [lefts, self._rows("each row of the right side", rel.right, stream)]
        kept = f" for each {_columns(per)}" if per else ""
        what = f"the latest row of the right side{kept}, and those after it"
        return [lefts, Memory(what, "the end", self._endless(right, per, stream))]

    def _over(self, rel: mmpl.Over) -> Memory:
        per = f" of each {_columns(rel.per)}" if rel.per else ""
        source = self.analysis.of(rel.input)
        stream = _never(source.seals)
        if _is_open(source.seals):
            return self._rows(f"the rows{per}", rel.input, stream)
        if rel.range is not None:
            return Memory(f"the rows{per}", f"the horizon reaches {rel.by} + {interval_text(rel.range)}")
        if source.is_history and not {a.function for _, a in rel.aggregates} & {"count_distinct", "group"}:
            return Memory(f"running totals{per}", "the end", self._endless(source, rel.per, stream))
        return self._rows(f"the rows{per}", rel.input, stream)

    def _until_sealed(self, what: str, rel: mmpl.Rel, source: RelationType) -> Memory:
        """Rows that are needed as long as anything about the result can change."""
        seals = self.analysis.of(rel).seals
        if not _is_open(seals):
            return Memory(what, _sealed(seals))
        return Memory(what, "the end", self._endless(source, source.heading.key, _never(seals)))


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _is_open(seals: Mapping[str, Seal]) -> bool:
    """Whether a stream can affect a row at any time."""
    return any(s.is_never for s in seals.values())


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
