"""Hypothesis strategies for MMPL trees. The trees are well formed, but need not be well typed."""

from decimal import Decimal
from functools import cache, partial
from typing import TypeVar, get_args

from hypothesis import strategies as st

from smile.algebra import mmpl, types
from smile.algebra.arrays import encode_array
from smile.algebra.coercions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN
from smile.algebra.types import DataType, Value

T = TypeVar("T")

BINARY = (
    *("or", "and", "is distinct from", "is not distinct from", "=", "<>", "<", "<=", ">", ">=", "like", "ilike"),
    *("||", "+", "-", "*", "/", "%"),
)
UNARY = ("not", "neg", "is null", "is not null")

_PLAIN = ("a", "b", "t", "x1", "#bid", "$", "_", "größe", "価格", "where", "Where", "time", "null")
_QUOTED = (
    "b.t",
    "WHERE",
    "SUM",
    "COUNT",
    "DAY",
    "NULL",
    "",
    '"',
    "a b",
    "1a",
    "--",
    "/*",
    "it's",
    "\n",
    "{",
    "é\u0301",
)
_INTS = st.integers(types.INT_MIN, types.INT_MAX) | st.integers(-3, 3)


@cache
def names() -> st.SearchStrategy[str]:
    return st.sampled_from((*_PLAIN, *_QUOTED)) | st.text(max_size=3)


_SCALARS = (
    *types.SIMPLE_TYPES.values(),
    *(
        types.array_type(element)
        for element in (types.BOOL, types.FLOAT, types.STRING, types.DATE, types.decimal_type(5, 2))
    ),
    types.NULL,
    *(types.decimal_type(*shape) for shape in ((1, 0), (1, 1), (10, 2), (19, 0), (38, 0), (38, 10), (38, 38))),
)


@cache
def data_types() -> st.SearchStrategy[DataType]:
    simple = st.sampled_from(_SCALARS)
    return simple | st.builds(types.relation_type, _tuples(st.tuples(names(), simple), 0, 2))


def _decimals(data_type: DataType) -> st.SearchStrategy[Decimal]:
    assert data_type.digits is not None
    greatest = 10**data_type.digits - 1
    return st.integers(-greatest, greatest).map(lambda n: Decimal(f"{n}E-{data_type.scale}"))


def _values(data_type: DataType) -> st.SearchStrategy[Value]:
    match data_type.name:
        case "bool":
            return st.booleans()
        case "int" | "time" | "interval":
            return _INTS
        case "float":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "decimal":
            return _decimals(data_type)
        case "string":
            return st.text(max_size=6) | st.sampled_from(["'", "''", "--", '"', "\r\n", "*/"])
        case "timestamp":
            return st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX)
        case "date":
            return st.integers(DATE_MIN, DATE_MAX)
        case "bytes":
            return st.binary(max_size=4)
        case "json":
            return st.sampled_from(['{"a": [1, "it\'s"]}', "1", "null", '"x"', '["--"]'])
        case "array":
            elements = st.lists(st.none() | _values(data_type.element), max_size=3)
            return elements.map(lambda values: encode_array(values, data_type.element))
    return st.none()


@cache
def constants() -> st.SearchStrategy[mmpl.Constant]:
    typed = [_values(t).map(partial(mmpl.Constant, type=t)) for t in _SCALARS]
    return st.one_of(*typed, data_types().map(partial(mmpl.Constant, None)))


def _tuples(items: st.SearchStrategy[T], least: int, most: int) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(items, min_size=least, max_size=most).map(tuple)


def _larger(inner: st.SearchStrategy[mmpl.Expr]) -> st.SearchStrategy[mmpl.Expr]:
    return st.one_of(
        st.builds(mmpl.Call, st.sampled_from(BINARY), st.tuples(inner, inner)),
        st.builds(mmpl.Call, st.sampled_from(UNARY), st.tuples(inner)),
        st.builds(mmpl.Call, st.sampled_from((*BINARY, *UNARY)) | names(), _tuples(inner, 0, 3)),
        st.builds(mmpl.Cast, inner, data_types()),
        st.builds(mmpl.Case, _tuples(st.tuples(inner, inner), 1, 2), inner),
    )


@cache
def expressions() -> st.SearchStrategy[mmpl.Expr]:
    leaves = st.builds(mmpl.ColumnRef, names()) | constants()
    return st.recursive(leaves, _larger, max_leaves=8)


@cache
def aggregates() -> st.SearchStrategy[mmpl.Aggregate]:
    others = ("group", *mmpl.JOINING_AGGREGATES, *mmpl.PERCENTILES)
    orders = _tuples(st.tuples(names(), st.booleans()), 0, 2).map(
        lambda pairs: tuple(zip(*pairs, strict=True)) or ((), ())
    )
    functions = st.sampled_from([name for name in get_args(mmpl.AggregateName) if name not in others])
    percentiles, fractions = st.sampled_from(mmpl.PERCENTILES), st.floats(0, 1)
    return st.one_of(
        st.builds(mmpl.Aggregate, functions, expressions()),
        st.builds(mmpl.Aggregate, percentiles, expressions(), fraction=fractions, descending=st.booleans()),
        st.builds(
            lambda arg, separator, order: mmpl.Aggregate(
                "string_agg", arg, order[0], separator=separator, directions=order[1]
            ),
            expressions(),
            st.text(),
            orders,
        ),
        st.builds(
            mmpl.Aggregate,
            st.just("string_agg"),
            expressions(),
            descending=st.booleans(),
            separator=st.text(),
            distinct=st.just(True),
        ),
        st.builds(
            lambda arg, order: mmpl.Aggregate("array_concat_agg", arg, order[0], directions=order[1]),
            expressions(),
            orders,
        ),
        st.builds(
            mmpl.Aggregate,
            st.just("array_concat_agg"),
            expressions(),
            descending=st.booleans(),
            distinct=st.just(True),
        ),
        st.just(mmpl.Aggregate("count")),
        st.builds(lambda columns: mmpl.Aggregate("group", columns=columns), _tuples(names(), 0, 2)),
    )


def _joins(
    inner: st.SearchStrategy[mmpl.Rel], on: st.SearchStrategy[tuple[tuple[str, str], ...]]
) -> list[st.SearchStrategy[mmpl.Rel]]:
    kinds = st.sampled_from(["inner", "left", "right", "full", "semi", "anti"])
    when = st.none() | expressions()
    return [
        st.builds(mmpl.Join, kinds, inner, inner, on, when, st.none(), st.booleans()),
        st.builds(mmpl.Join, st.just("match"), inner, inner, on, when, names(), st.booleans()),
        st.builds(mmpl.Asof, st.sampled_from(["inner", "left"]), inner, inner, on, st.tuples(names(), names())),
    ]


def _operators(inner: st.SearchStrategy[mmpl.Rel]) -> st.SearchStrategy[mmpl.Rel]:
    columns = _tuples(names(), 0, 3)
    pairs = _tuples(st.tuples(names(), names()) | names().map(lambda name: (name, name)), 0, 2)
    named = _tuples(st.tuples(names(), aggregates()), 1, 2)
    order = _tuples(st.tuples(expressions(), st.booleans()), 1, 2)
    return st.one_of(
        st.builds(mmpl.Restrict, inner, expressions()),
        st.builds(mmpl.Project, inner, columns),
        st.builds(mmpl.Extend, inner, _tuples(st.tuples(names(), expressions()), 0, 2)),
        st.builds(mmpl.Rename, inner, pairs),
        *_joins(inner, pairs),
        st.builds(mmpl.Summarize, inner, columns, named),
        st.builds(mmpl.Distinct, inner),
        st.builds(mmpl.Best, inner, st.integers(0, types.INT_MAX), order, columns),
        st.builds(mmpl.Window, st.sampled_from(["tumble", "last"]), inner, names(), _INTS),
        st.builds(mmpl.Window, st.just("tumble"), inner, names(), _INTS, st.none(), _INTS),
        st.builds(mmpl.Window, st.just("hop"), inner, names(), _INTS, _INTS, st.just(0) | _INTS),
        st.builds(mmpl.Over, inner, columns, names(), st.none() | _INTS, named),
        st.builds(mmpl.OverRows, inner, columns, names(), _INTS, _INTS, named),
        st.builds(mmpl.Ungroup, inner, names(), _tuples(names(), 1, 2), names(), st.booleans()),
        st.builds(mmpl.Session, inner, names(), columns, _INTS),
        st.builds(mmpl.Silence, inner, names(), names(), columns, _INTS),
        st.builds(mmpl.Merge, _tuples(inner, 1, 3)),
        st.builds(mmpl.Union, _tuples(inner, 1, 3)),
    )


@cache
def relations() -> st.SearchStrategy[mmpl.Rel]:
    return st.recursive(st.builds(mmpl.RelationRef, names()), _operators, max_leaves=6)


@cache
def programs() -> st.SearchStrategy[mmpl.Program]:
    columns = _tuples(st.tuples(names(), data_types()), 0, 3)
    unique = _tuples(_tuples(names(), 1, 2), 0, 2)
    stream_parts = names(), names(), columns, _tuples(expressions(), 0, 2), st.booleans(), st.booleans(), unique
    streams = st.builds(mmpl.StreamDef, *stream_parts, is_table=st.booleans())
    views = st.builds(mmpl.ViewDef, names(), relations(), st.booleans())
    definition = st.none() | st.builds(
        mmpl.Program, _tuples(streams, 0, 1), _tuples(views, 0, 1), _tuples(names(), 0, 1)
    )
    conditions = st.none() | expressions()
    imports = st.builds(mmpl.ImportDef, names(), names(), names(), conditions, definition, st.integers(1, 3))
    parts = _tuples(streams, 0, 2), _tuples(views, 0, 2), _tuples(names(), 0, 2), _tuples(imports, 0, 2)
    return st.builds(mmpl.Program, *parts)
