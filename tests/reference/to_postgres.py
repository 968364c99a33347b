"""SmileSQL as PostgreSQL: a query of plain SQL, and what SMILE adds to it, written out. Names are in one case, quoted.

Written out are: an alias of the select list in WHERE and HAVING; SUM of nothing, which is 0; AVG, which is a float; the
rows of a total relation that a join asks for; ties, which go to the smaller key; intervals, as counts of ticks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from smile.algebra.coercions import parse_interval
from smile.algebra.types import INT_MIN
from smile.lang import (
    ArrayAggregate,
    BestClause,
    CreateView,
    Earliest,
    Latest,
    NestedGroup,
    Percentile,
    PercentileCont,
    SilenceCall,
    StreamFunction,
    StringAggregate,
)
from smile.translate.type_names import cast_target_type
from tests.reference.postgres import name_of, type_name

NOT_PLAIN = (BestClause, Earliest, Latest, NestedGroup, SilenceCall, StreamFunction)


@dataclass(frozen=True)
class Known:
    """A relation that a query may name. `query` is what it was defined by, `key` those key columns that it shows."""

    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    query: exp.Query | None = None


Scope = Mapping[str, Known]


def is_plain(view: CreateView, special: Iterable[str]) -> bool:
    """Whether it is plain SQL, over relations none of which is special."""
    names = {name_of(table.name) for table in view.query.find_all(exp.Table)}
    asof = any(join.args.get("method") for join in view.query.find_all(exp.Join))
    return not asof and not names & set(special) and view.query.find(*NOT_PLAIN) is None


def to_postgres(query: exp.Query, scope: Scope) -> str:
    written = query.copy()
    _write_out(written, scope)
    for subscript in written.find_all(exp.Bracket):
        subscript.set("offset", 1)  # PostgreSQL counts from 1 too
    for array in written.find_all(exp.Array):
        whole = [e for e in array.expressions if isinstance(e, exp.Literal) and e.is_int]
        for literal in whole:  # an int there has 32 bits, and arrays of other ints cannot be compared with these
            to = exp.DataType(this=exp.DType.USERDEFINED, kind="int")
            literal.replace(exp.Cast(this=literal.copy(), to=to))
    # A root is replaced only by what transform returns.
    return written.transform(_respell).sql(dialect="postgres", identify=True, comments=False)


# ── spelling ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _respell(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Identifier():
            return exp.to_identifier(name_of(node.name), quoted=True)
        case exp.Interval():
            unit = node.args.get("unit")
            return exp.Literal.number(parse_interval(node.this.name, unit.name if unit else None))
        case exp.HexString():
            return exp.cast(exp.Literal.string(f"\\x{node.name}"), "bytea", dialect="postgres")
        case exp.Neg() if node.this.name == str(-INT_MIN):
            return exp.cast(exp.Literal.string(str(INT_MIN)), "bigint", dialect="postgres")
        case exp.DataType():
            return exp.DataType.build(type_name(cast_target_type(node, None)), dialect="postgres")
        case Percentile():
            return _percentile(node)
        case StringAggregate():
            return _string_aggregate(node)
        case ArrayAggregate():
            return _array_aggregate(node)
    return node


def _percentile(node: Percentile) -> exp.Expr:
    kind = exp.PercentileCont if isinstance(node, PercentileCont) else exp.PercentileDisc
    order = exp.Order(expressions=[exp.Ordered(this=node.this, desc=node.descending)])
    return exp.WithinGroup(this=kind(this=node.fraction), expression=order)


def _string_aggregate(node: StringAggregate) -> exp.Expr:
    """PostgreSQL joins strings only."""
    text: exp.Expr = exp.cast(node.this, "text", dialect="postgres")
    ordered = node.order
    if node.is_distinct:
        ordered = [exp.Ordered(this=text.copy(), desc=node.descending)]
        text = exp.Distinct(expressions=[text])
    separator: exp.Expr = node.args["separator"]
    if ordered:
        separator = exp.Order(this=separator, expressions=ordered)
    return exp.Anonymous(this="STRING_AGG", expressions=[text, separator])


def _array_aggregate(node: ArrayAggregate) -> exp.Expr:
    value: exp.Expr = node.this
    ordered = node.order
    if node.is_distinct:
        ordered = [exp.Ordered(this=value.copy(), desc=node.descending, nulls_first=bool(node.descending))]
        value = exp.Distinct(expressions=[value])
    argument = exp.Order(this=value, expressions=ordered) if ordered else value
    call = exp.Anonymous(this="ARRAY_AGG", expressions=[argument])
    return call if node.filter is None else exp.Filter(this=call, expression=exp.Where(this=node.filter))


def _wrap(select: exp.Select) -> None:
    """SUM of nothing is 0; AVG is a float; parts of a moment are ints where they are whole."""
    for node in list(_own(select, exp.Sum, exp.Avg, exp.Extract)):
        whole = node.parent if isinstance(node.parent, exp.Window) else node
        if isinstance(node, exp.Sum):
            whole.replace(exp.Coalesce(this=whole.copy(), expressions=[exp.Literal.number(0)]))
        elif isinstance(node, exp.Avg) or node.name.upper() not in ("SECOND", "EPOCH"):
            kind = "float" if isinstance(node, exp.Avg) else "int"
            to = exp.DataType(this=exp.DType.USERDEFINED, kind=kind)
            whole.replace(exp.Cast(this=whole.copy(), to=to))


# ── queries ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Source:
    """A relation in FROM or JOIN. `pairs` are, of each of its columns, the columns of others that must equal it."""

    name: str
    node: exp.Expr
    columns: tuple[str, ...]
    known: Known | None
    pairs: dict[str, list[tuple["Source", str]]] = field(default_factory=dict)


def _write_out(node: exp.Expr, scope: Scope) -> None:
    """In place, the inner queries first."""
    if isinstance(node, exp.Query) and (ctes := node.args.get("with_")):
        for cte in ctes.expressions:
            _write_out(cte.this, scope)
            names = _renamed(_outputs(cte.this, scope), cte.args.get("alias"))
            scope = {**scope, name_of(cte.alias): Known(names, (), cte.this.copy())}
    for key, child in list(node.args.items()):
        if key != "with_":
            for part in child if isinstance(child, list) else [child]:
                if isinstance(part, exp.Expr):
                    _write_out(part, scope)
    if isinstance(node, exp.Select):
        sources = _sources(node, scope)
        _replace_aliases(node, {c for source in sources for c in source.columns})
        _pair(node, sources)
        _break_ties(node, sources)
        _order_texts(node, sources)
        _complete(sources)
        _wrap(node)


def _own(select: exp.Select, *kinds: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The nodes of these kinds that belong to this query and not to one within it."""
    for node in select.walk(prune=lambda n: n is not select and isinstance(n, exp.Query)):
        if isinstance(node, kinds):
            yield node


def _sources(select: exp.Select, scope: Scope) -> list[Source]:
    nodes = [select.args["from_"].this] if select.args.get("from_") else []
    nodes += [join.this for join in select.args.get("joins") or []]
    sources = []
    for node in nodes:
        if isinstance(node, exp.Table):
            known = scope.get(name_of(node.name))
            columns = known.columns if known else ()
        elif isinstance(node, exp.Values | exp.Unnest):
            known, columns = None, ()  # its alias names the columns
        else:
            columns = _outputs(node.this, scope)
            known = Known(columns, (), node.this)
        sources.append(Source(name_of(node.alias_or_name), node, _renamed(columns, node.args.get("alias")), known))
    return sources


def _renamed(columns: tuple[str, ...], alias: exp.Expr | None) -> tuple[str, ...]:
    new = tuple(name_of(c.name) for c in alias.args.get("columns") or []) if alias else ()
    return new + columns[len(new) :]


def _outputs(query: exp.Expr, scope: Scope) -> tuple[str, ...]:
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    assert isinstance(query, exp.Select)
    names: list[str] = []
    for shown in query.expressions:
        if shown.is_star:
            of = name_of(shown.table) if isinstance(shown, exp.Column) else ""
            names += [c for s in _sources(query, scope) if of in ("", s.name) for c in s.columns]
        else:
            names.append(name_of(shown.alias_or_name))
    return tuple(dict.fromkeys(names))


def _replace_aliases(select: exp.Select, columns: set[str]) -> None:
    """A column's name means the column; only a name that no column has is an alias."""
    aliases = {name_of(a.alias): a.this for a in select.expressions if isinstance(a, exp.Alias)}
    clauses = [select.args.get(c) for c in ("where", "having", "group", "order")]
    for clause in filter(None, clauses):
        for column in list(clause.find_all(exp.Column)):
            named = name_of(column.name)
            output = isinstance(clause, exp.Order) and isinstance(column.parent, exp.Ordered)
            own = column.find_ancestor(exp.Select) is select and not column.table and not output
            if own and named in aliases and named not in columns:
                column.replace(exp.paren(aliases[named].copy()))


def _pair(select: exp.Select, sources: list[Source]) -> None:
    """Which columns of different sources this query equates."""
    conditions = [c.this for c in [select.args.get("where")] if c]
    for at, join in enumerate(select.args.get("joins") or [], 1):
        conditions += [c for c in [join.args.get("on")] if c]
        for column in join.args.get("using") or []:
            name = name_of(column.name)
            other = next(s for s in sources[:at] if name in s.columns)
            _equate((other, name), (sources[at], name))
    for condition in conditions:
        for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
            part = part.unnest()
            if isinstance(part, exp.EQ) and isinstance(part.this, exp.Column):
                a, b = _find(part.this, sources), _find(part.expression, sources)
                if a and b and a[0] is not b[0]:
                    _equate(a, b)


def _find(node: Any, sources: list[Source]) -> tuple[Source, str] | None:
    if not isinstance(node, exp.Column):
        return None
    name, table = name_of(node.name), name_of(node.table)
    matching = [s for s in sources if name in s.columns and table in ("", s.name)]
    return (matching[0], name) if matching else None


def _equate(a: tuple[Source, str], b: tuple[Source, str]) -> None:
    a[0].pairs.setdefault(a[1], []).append(b)
    b[0].pairs.setdefault(b[1], []).append(a)


def _break_ties(select: exp.Select, sources: list[Source]) -> None:
    """Ties go to the smaller key, NULLs last in it. Keys that a query hides are out of reach."""
    if not select.args.get("limit"):
        return
    order = select.args["order"]
    if select.args.get("distinct"):
        more: list[exp.Expr] = [exp.Literal.number(n) for n, _ in enumerate(select.expressions, 1)]
    elif group := select.args.get("group"):
        more = [e.copy() for e in group.expressions]
    else:
        more = _keys(sources)
    for expression in more:
        order.append("expressions", exp.Ordered(this=expression, desc=False, nulls_first=False))


def _order_texts(select: exp.Select, sources: list[Source]) -> None:
    """STRING_AGG and ARRAY_AGG have the order of the key, after that which they name."""
    for node in _own(select, StringAggregate, ArrayAggregate):
        assert isinstance(node, StringAggregate | ArrayAggregate)
        if not node.is_distinct:
            keys = [exp.Ordered(this=key, desc=False, nulls_first=False) for key in _keys(sources)]
            node.set("order", [*node.order, *keys])


def _keys(sources: list[Source]) -> list[exp.Expr]:
    return [exp.column(c, s.name) for s in sources if s.known for c in s.known.key]


# ── total relations ─────────────────────────────────────────────────────────────────────────────────────────────────


def _complete(sources: list[Source]) -> None:
    """A total relation whose whole key is equated has a row for every key that the other side has."""
    replaced = []
    for source in sources:
        query = source.known.query if source.known else None
        positions = _key_positions(query) if isinstance(query, exp.Select) else None
        if positions and all(source.pairs.get(source.columns[p]) for p in positions):
            assert isinstance(query, exp.Select)
            replaced.append((source.node, _completed(source, query, positions)))
    for node, completed in replaced:
        node.replace(completed)


def _key_positions(select: exp.Select) -> list[int] | None:
    """Where the whole group key is in the select list of a query that is total: one with groups, all of them shown."""
    group = select.args.get("group")
    if group is None or any(select.args.get(c) for c in ("having", "distinct", "limit")):
        return None
    positions = []
    for expression in group.expressions:
        if isinstance(expression, exp.Literal):
            positions.append(int(expression.name) - 1)
            continue
        shown = [n for n, e in enumerate(select.expressions) if expression in (e, e.unalias())]
        shown += [n for n, e in enumerate(select.expressions) if name_of(e.alias) == name_of(expression.name)]
        if not shown:
            return None
        positions.append(shown[0])
    return positions


def _completed(source: Source, query: exp.Select, positions: list[int]) -> exp.Expr:
    """The relation, and for each key that the other side has and it has not, the key with what aggregates of nothing
    are."""
    keys = [source.columns[p] for p in positions]
    others = [source.pairs[c][0] for c in keys]
    tables = list({id(other): other for other, _ in others}.values())
    heard = exp.select(*(exp.column(c, o.name).as_(k) for k, (o, c) in zip(keys, others, strict=True))).distinct()
    heard = heard.from_(tables[0].node.copy())
    for table in tables[1:]:
        heard = heard.join(table.node.copy(), join_type="cross")
    nothing = query.copy()
    nothing.set("group", None)
    nothing.set("where", exp.Where(this=exp.false()))
    group = [query.expressions[p].unalias() for p in positions]
    kept = [
        _with_key(e.unalias(), group, keys).as_(c)
        for n, (e, c) in enumerate(_named(query, source))
        if n not in positions
    ]
    nothing.set("expressions", kept or [exp.Literal.number(1).as_("nothing")])
    _wrap(nothing)
    row = [exp.column(c, "heard" if n in positions else "nothing") for n, c in enumerate(source.columns)]
    own = exp.select("*").from_(source.node.copy())
    there = exp.select("1").from_(own.copy().subquery("there"))
    there = there.where(*(exp.column(k, "there").eq(exp.column(k, "heard")) for k in keys))
    lateral = exp.Lateral(this=nothing.subquery(), alias=exp.TableAlias(this=exp.to_identifier("nothing")))
    unheard = exp.select(*row).from_(heard.subquery("heard")).join(lateral, join_type="cross")
    unheard = unheard.where(
        *(exp.column(k, "heard").is_(exp.null()).not_() for k in keys), exp.Exists(this=there).not_()
    )
    return exp.union(own, unheard, distinct=False).subquery(source.name)


def _with_key(value: exp.Expr, group: list[exp.Expr], keys: list[str]) -> exp.Expr:
    """A value of a group, with the key that was heard in place of the group's own."""

    def heard(node: exp.Expr) -> exp.Expr:
        is_key = node in group and node.find_ancestor(exp.AggFunc) is None
        return exp.column(keys[group.index(node)], "heard") if is_key else node

    return value.transform(heard)


def _named(query: exp.Select, source: Source) -> Iterator[tuple[exp.Expr, str]]:
    return zip((e.copy() for e in query.expressions), source.columns, strict=True)
