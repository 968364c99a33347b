"""The state that each transform must keep, and until when. A transform without an entry keeps none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smile.algebra import mmpl, trees
from smile.algebra.coercions import interval_text
from smile.algebra.heading import is_key_equated
from smile.algebra.printer import print_expression
from smile.knowledge.aggregate_types import membership, value_count
from smile.knowledge.analysis import TypeAnalysis
from smile.knowledge.expression_types import expression_type
from smile.knowledge.join_types import match_constraints
from smile.knowledge.seals import START, Seal
from smile.knowledge.types import RelationType


@dataclass(frozen=True)
class UnboundedState:
    """The column whose values accumulate, why none of them can be dropped, and what would change that."""

    column: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class StateRetention:
    """`unbounded` is None if the state is bounded by live data, or by the state of another transform."""

    description: str
    until: str
    unbounded: UnboundedState | None = None


class StateAnalysis:
    def __init__(self, program: mmpl.Program, analysis: TypeAnalysis) -> None:
        self.analysis = analysis
        self.bodies = {v.name: v.body for v in program.views}
        self.subscribed = {self.bodies[n] for n in program.subscriptions if n in self.bodies}
        self.readers: dict[mmpl.Rel, list[mmpl.Rel]] = {}
        for view in program.views:
            for node in trees.walk(view.body):
                for source in trees.inputs_of(node):
                    self.readers.setdefault(self._resolve_ref(source), []).append(node)

    def _resolve_ref(self, rel: mmpl.Rel) -> mmpl.Rel:
        while isinstance(rel, mmpl.RelationRef) and rel.name in self.bodies:
            rel = self.bodies[rel.name]
        return rel

    def state_of(self, rel: mmpl.Rel) -> list[StateRetention]:
        match rel:
            case mmpl.Summarize():
                return self._group_state(rel, rel.per, _format_names([name for name, _ in rel.aggregates]))
            case mmpl.Distinct():
                return self._group_state(rel, self.analysis.relation_type(rel).heading.key, "a count of the rows")
            case mmpl.Best():
                return [self._best_state(rel)]
            case mmpl.Join():
                return self._join_state(rel)
            case mmpl.Asof():
                return self._asof_state(rel)
            case mmpl.Over():
                return [self._over_state(rel)]
            case mmpl.Window(kind="last"):
                return [StateRetention("each row", f"the horizon reaches {rel.on} + {interval_text(rel.size)}")]
            case mmpl.Silence():
                per = f" of each {_format_columns(rel.per)}" if rel.per else ""
                until = f"the horizon reaches {rel.tick} + {interval_text(rel.longer_than)}"
                return [StateRetention(f"the last row{per}", until)]
        return []

    # ── groups ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _group_state(
        self, rel: mmpl.Summarize | mmpl.Distinct, per: tuple[str, ...], description: str
    ) -> list[StateRetention]:
        source, group = self.analysis.relation_type(rel.input), self.analysis.relation_type(rel)
        if any(source.columns[c].evolves for c in per):
            # A row may move to another group, so the rows themselves are kept.
            description = f"each row, to group it by {_format_columns(per)}"
            return [self._row_state(description, rel.input, _unsealed_stream(group.seals))]
        if membership(source, per).is_single:
            return []
        per_group = f"for each {_format_columns(per)}" if per else "once"
        member_state = self._member_state(rel, source)
        if member_state:
            group_description = f"{description}, with {member_state.description}, {per_group}"
        else:
            group_description = f"{description} {per_group}" if per else f"{description}, once"
        if per and not _has_open_seal(group.seals):
            return [StateRetention(group_description, _seal_condition(group.seals))]
        if per and self._is_transient(rel.input) and not (member_state and member_state.unbounded):
            return [StateRetention(group_description, "its last member is hidden for good")]
        hiding_condition = None if member_state else self._hiding_condition(rel, of_group=True)
        if hiding_condition is not None:
            return [StateRetention(group_description, hiding_condition)]
        unbounded = member_state.unbounded if member_state else None
        if not self._has_stored_groups(rel.input):
            unbounded = self._unbounded_state(group, per, _unsealed_stream(group.seals)) or unbounded
        return [StateRetention(group_description, "the end", unbounded)]

    def _member_state(self, rel: mmpl.Summarize | mmpl.Distinct, source: RelationType) -> StateRetention | None:
        """The state of a group's members that is kept beside the row of the group."""
        aggregates = [a for _, a in rel.aggregates] if isinstance(rel, mmpl.Summarize) else []
        functions = {a.function for a in aggregates}
        stream = _unsealed_stream(self.analysis.relation_type(rel).seals)
        if "group" in functions:
            # A permanently hidden member must be distinguished from an absent one.
            return StateRetention("all members", "the end", self._unbounded_rows(rel.input, stream))
        members = self._row_state("all members", rel.input, stream)
        can_lose_extreme = not source.never_leaves and functions & {"min", "max", "latest"}
        if can_lose_extreme and members.unbounded is not None:
            return members
        for aggregate_call in aggregates:
            if aggregate_call.function == "count_distinct" and aggregate_call.arg is not None:
                unbounded = self._unbounded_values(aggregate_call.arg, source, stream)
                if self._is_transient(rel.input):
                    unbounded = None
                member_description = "all members" if can_lose_extreme else "the values counted"
                return StateRetention(member_description, "the end", unbounded)
        return members if can_lose_extreme else None

    def _unbounded_values(self, arg: mmpl.Expr, source: RelationType, stream: str) -> UnboundedState | None:
        if value_count(expression_type(arg, source.columns)).is_finite:
            return None
        value = print_expression(arg)
        reason = f"{stream} may have one more event with another {value} at any time"
        remedy = f"Group by a window as well, give {value} a domain with bounds, or use LAST"
        return UnboundedState(value, reason, remedy)

    def _has_stored_groups(self, rel: mmpl.Rel) -> bool:
        """Whether its rows are groups that another transform keeps until the end: then their state bounds this one."""
        rel = self._resolve_ref(rel)
        while isinstance(rel, mmpl.Restrict | mmpl.Project | mmpl.Extend | mmpl.Rename | mmpl.Best):
            rel = self._resolve_ref(rel.input)
        if not isinstance(rel, mmpl.Summarize | mmpl.Distinct):
            return False
        return all(s.until == "the end" for s in self.state_of(rel))

    def _row_state(self, description: str, rel: mmpl.Rel, stream: str) -> StateRetention:
        """Rows of a relation that are needed as long as they can be shown."""
        if self._is_transient(rel):
            return StateRetention(description, "it is hidden for good")
        return StateRetention(description, "the end", self._unbounded_rows(rel, stream))

    def _unbounded_rows(self, rel: mmpl.Rel, stream: str) -> UnboundedState | None:
        type_ = self.analysis.relation_type(rel)
        return None if self._has_stored_groups(rel) else self._unbounded_state(type_, type_.heading.key, stream)

    def _is_transient(self, rel: mmpl.Rel) -> bool:
        """Whether every row eventually becomes permanently hidden."""
        mask = self.analysis.relation_type(rel).mask
        return mask.falls_for_good and (not mask.can_be_final_true or self._has_expiring_rows(rel))

    def _has_expiring_rows(self, rel: mmpl.Rel) -> bool:
        """Whether every row is hidden as time passes."""
        rel = self._resolve_ref(rel)
        if isinstance(rel, mmpl.Window) and rel.kind == "last":
            return True
        if isinstance(rel, mmpl.Summarize | mmpl.Distinct | mmpl.RelationRef):
            return False
        sources = trees.inputs_of(rel)
        if isinstance(rel, mmpl.Union | mmpl.Merge):
            return all(self._has_expiring_rows(source) for source in sources)
        any_side_expires = isinstance(rel, mmpl.Join) and rel.kind == "inner"
        if isinstance(rel, mmpl.Join) and rel.kind in ("right", "full"):
            return False
        return any(self._has_expiring_rows(source) for source in (sources if any_side_expires else sources[:1]))

    # ── rows that a restriction hides permanently ───────────────────────────────────────────────────────────────────

    def _hiding_condition(self, rel: mmpl.Rel, of_group: bool = False) -> str | None:
        """The condition under which a row of `rel` expires: a restriction hides everything computed from it
        permanently.

        The row must not come again. A row of a join does not if it belongs to one row of an append-only left side.
        Neither does a group that is joined to one such row; other groups come again with their next member.
        """
        readers = list(dict.fromkeys(self.readers.get(rel, [])))
        if rel in self.subscribed or len(readers) != 1:
            return None
        (reader,) = readers
        match reader:
            case mmpl.Restrict() if not of_group and self._is_transient(reader):
                return f"{self._view_name(reader)} hides the row for good"
            case mmpl.Restrict() | mmpl.Project() | mmpl.Extend() | mmpl.Rename():
                return self._hiding_condition(reader, of_group)
            case mmpl.Join() if of_group and self._is_joined_to_one_row(rel, reader):
                return self._hiding_condition(reader)
        return None

    def _is_joined_to_one_row(self, group: mmpl.Rel, join: mmpl.Join) -> bool:
        left = self.analysis.relation_type(join.left)
        on_key = {a for a, _ in join.on} == set(left.heading.key)
        return on_key and self._has_one_row_per_left(join) and self._resolve_ref(join.left) != group

    def _has_one_row_per_left(self, join: mmpl.Join) -> bool:
        """Whether each row of the join belongs to one row of its left side, which comes only once."""
        left, right = self.analysis.relation_type(join.left), self.analysis.relation_type(join.right)
        on_right_key = is_key_equated(right.heading, [b for _, b in join.on])
        return join.kind in ("inner", "left") and left.is_append_only and on_right_key

    def _view_name(self, rel: mmpl.Rel) -> str:
        """The nearest view downstream: users know its name."""
        node = rel
        while node not in self.bodies.values():
            node = self.readers[node][0]
        return next(n for n, b in self.bodies.items() if b == node)

    def _unbounded_state(self, type_: RelationType, columns: Sequence[str], stream: str) -> UnboundedState | None:
        for column in columns:
            if not value_count(type_.columns[column]).is_finite:
                reason = f"{stream} may have one more event for any {column} at any time"
                remedy = f"Group by a window as well, give {column} a domain with bounds, or use LAST"
                return UnboundedState(column, reason, remedy)
        return None

    def _best_state(self, rel: mmpl.Best) -> StateRetention:
        source, best = self.analysis.relation_type(rel.input), self.analysis.relation_type(rel)
        per = f" of each {_format_columns(rel.per)}" if rel.per else ""
        if not _has_open_seal(best.seals):
            return StateRetention(f"each row{per}", _seal_condition(best.seals))
        ranked = f"the best {rel.k} rows{per}"
        unbounded = self._unbounded_state(source, rel.per, _unsealed_stream(best.seals))
        if best.mask.falls_for_good and source.never_leaves:
            return StateRetention(ranked, "the end", unbounded)
        if not _has_open_seal(source.seals) and not self._is_transient(rel.input):
            # A sealed row is final: it is among the best or not.
            return StateRetention(f"{ranked}, and those that may change", "the end", unbounded)
        return self._row_state(f"each row{per}", rel.input, _unsealed_stream(best.seals))

    # ── joins ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _join_state(self, rel: mmpl.Join) -> list[StateRetention]:
        retentions = [self._side_state(rel, rel.left, rel.right, [a for a, _ in rel.on])]
        if rel.kind in ("semi", "anti", "match") and self._can_count_matches(rel):
            return [*retentions, self._count_state(rel)]
        source = self._resolve_ref(rel.right)
        while isinstance(source, mmpl.Project | mmpl.Rename):
            source = self._resolve_ref(source.input)
        if isinstance(source, mmpl.Summarize) and self._is_lookup_side(rel, rel.right):
            source_state, is_open = self.state_of(source), _has_open_seal(self.analysis.relation_type(source).seals)
            if source_state and all(is_open or s.until == "the end" for s in source_state):
                # One row for each group, kept as long as the group itself.
                return retentions
        return [*retentions, self._side_state(rel, rel.right, rel.left, [b for _, b in rel.on])]

    def _side_state(self, rel: mmpl.Join, side: mmpl.Rel, other_rel: mmpl.Rel, joined: list[str]) -> StateRetention:
        """The rows of one side, until no row of the other side can match them any more."""
        own, other = self.analysis.relation_type(side), self.analysis.relation_type(other_rel)
        description = f"each row of {self._side_name(rel, side)}" + (f" by {_format_columns(joined)}" if joined else "")
        fixed = [c for c, t in own.columns.items() if not t.evolves]
        constraints = match_constraints(
            rel, self.analysis.relation_type(rel.left), self.analysis.relation_type(rel.right)
        )
        seals = {s: constraints.express_seal(seal, fixed) for s, seal in other.seals.items()}
        is_lookup_side = self._is_lookup_side(rel, side)
        if is_lookup_side:
            # A row is needed until it is final and nothing can look it up any more.
            for stream, seal in own.seals.items():
                own_seal = seal if {c for c, _ in seal.terms} <= {*fixed, START} else Seal.NEVER
                seals[stream] = seals[stream].latest(own_seal) if stream in seals else own_seal
        if not _has_open_seal(seals):
            return StateRetention(description, _seal_condition(seals))
        must_report_deletion = rel.kind != "inner" and is_key_equated(own.heading, joined)
        if self._is_transient(side) and not (is_lookup_side and must_report_deletion):
            return StateRetention(description, "it is hidden for good")
        if side is rel.left:
            if rel.kind in ("semi", "anti") and self.analysis.relation_type(rel).mask.falls_for_good:
                return StateRetention(description, "it is hidden for good")
            hiding_condition = self._hiding_condition(rel) if self._has_one_row_per_left(rel) else None
            if hiding_condition is not None:
                return StateRetention(description, hiding_condition)
        unbounded = None if self._has_stored_groups(side) else self._unbounded_state(own, own.heading.key, "")
        if unbounded is not None:
            unbounded = _unbounded_distance(unbounded.column, seals, "change" if is_lookup_side else "match")
        return StateRetention(description, "the end", unbounded)

    def _side_name(self, rel: mmpl.Join, side: mmpl.Rel) -> str:
        source = _without_renames(side)
        if isinstance(source, mmpl.RelationRef):
            return source.name
        return "the left side" if side is rel.left else "the right side"

    def _is_lookup_side(self, rel: mmpl.Join, side: mmpl.Rel) -> bool:
        """Whether each row of the other side looks up one row of this side by its key, and is kept without a match."""
        key_and_total = {}
        for which, position in ((rel.left, 0), (rel.right, 1)):
            heading = self.analysis.relation_type(which).heading
            on_key = is_key_equated(heading, [pair[position] for pair in rel.on])
            key_and_total[position] = (on_key, on_key and heading.total)
        on_key, is_total = key_and_total[0 if side is rel.left else 1]
        if rel.kind == "full":
            return key_and_total[0][0] and key_and_total[1][0]
        return (rel.kind == "inner" and is_total) or (rel.kind == ("right" if side is rel.left else "left") and on_key)

    def _can_count_matches(self, rel: mmpl.Join) -> bool:
        """Whether a test depends only on equated values that are fixed: then counts are kept instead of right rows."""
        left, right = self.analysis.relation_type(rel.left), self.analysis.relation_type(rel.right)
        fixed = not any(left.columns[a].evolves or right.columns[b].evolves for a, b in rel.on)
        join_columns = {b for _, b in rel.on}
        key_only = not is_key_equated(right.heading, join_columns) or join_columns == set(right.heading.key)
        return rel.when is None and not rel.null_aware and fixed and key_only

    def _count_state(self, rel: mmpl.Join) -> StateRetention:
        left, right = self.analysis.relation_type(rel.left), self.analysis.relation_type(rel.right)
        on = list(dict.fromkeys(b for _, b in rel.on))
        description = f"a count of the rows of {self._side_name(rel, rel.right)}" + (
            f" for each {_format_columns(on)}" if on else ""
        )
        constraints = match_constraints(rel, left, right)
        seals = {s: constraints.express_seal(seal, on) for s, seal in left.seals.items()}
        if not _has_open_seal(seals):
            return StateRetention(description, _seal_condition(seals))
        if self._is_transient(rel.right) and not is_key_equated(right.heading, on):
            return StateRetention(description, "the last of them is hidden for good")
        unbounded = None if self._has_stored_groups(rel.right) else self._unbounded_state(right, on, "")
        if unbounded is not None:
            unbounded = _unbounded_distance(unbounded.column, seals, "look up")
        return StateRetention(description, "the end", unbounded)

    def _asof_state(self, rel: mmpl.Asof) -> list[StateRetention]:
        left, right = self.analysis.relation_type(rel.left), self.analysis.relation_type(rel.right)
        left_state = self._until_sealed("each row of the left side", rel, left)
        per = [b for _, b in rel.on]
        stream = " and ".join(left.seals)
        has_evolving_keys = any(left.columns[a].evolves or right.columns[b].evolves for a, b in (*rel.on, rel.ticks))
        left_can_be_late = any(
            left.constraints.express_seal(seal, [rel.ticks[0]]).is_never for seal in left.seals.values()
        )
        if has_evolving_keys or left_can_be_late or _has_open_seal(right.seals) or self._is_transient(rel.right):
            # No right row is known to replace the earlier ones for all left rows to come.
            return [left_state, self._row_state("each row of the right side", rel.right, stream)]
        per_key = f" for each {_format_columns(per)}" if per else ""
        description = f"the latest row of the right side{per_key}, and those after it"
        return [left_state, StateRetention(description, "the end", self._unbounded_state(right, per, stream))]

    def _over_state(self, rel: mmpl.Over) -> StateRetention:
        per = f" of each {_format_columns(rel.per)}" if rel.per else ""
        source = self.analysis.relation_type(rel.input)
        stream = _unsealed_stream(source.seals)
        if _has_open_seal(source.seals):
            return self._row_state(f"the rows{per}", rel.input, stream)
        if rel.range is not None:
            return StateRetention(f"the rows{per}", f"the horizon reaches {rel.by} + {interval_text(rel.range)}")
        if source.is_append_only and not {a.function for _, a in rel.aggregates} & {"count_distinct", "group"}:
            return StateRetention(f"running totals{per}", "the end", self._unbounded_state(source, rel.per, stream))
        return self._row_state(f"the rows{per}", rel.input, stream)

    def _until_sealed(self, description: str, rel: mmpl.Rel, source: RelationType) -> StateRetention:
        """Rows that are needed as long as the result can change."""
        seals = self.analysis.relation_type(rel).seals
        if not _has_open_seal(seals):
            return StateRetention(description, _seal_condition(seals))
        return StateRetention(
            description, "the end", self._unbounded_state(source, source.heading.key, _unsealed_stream(seals))
        )


def _unbounded_distance(column: str, seals: Mapping[str, Seal], effect: str) -> UnboundedState:
    reason = f"an event of {_unsealed_stream(seals)} can {effect} it at any later tick"
    remedy = "Bound the distance of the ticks (… AND p <= o + INTERVAL '10' MINUTE), or use LAST"
    return UnboundedState(column, reason, remedy)


def _format_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _has_open_seal(seals: Mapping[str, Seal]) -> bool:
    """Whether some stream can affect rows at any time: a row is never sealed."""
    return any(s.is_never for s in seals.values())


def _without_renames(rel: mmpl.Rel) -> mmpl.Rel:
    """The input below projections and renamings, which leave the rows the same."""
    while isinstance(rel, mmpl.Project | mmpl.Rename):
        rel = rel.input
    return rel


def _format_columns(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _unsealed_stream(seals: Mapping[str, Seal]) -> str:
    return next((s for s, seal in seals.items() if seal.is_never), next(iter(seals), ""))


def _seal_condition(seals: Mapping[str, Seal]) -> str:
    return " and ".join(f"the horizon of {s} reaches {seal}" for s, seal in seals.items())
