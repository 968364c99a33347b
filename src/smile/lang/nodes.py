"""The syntax nodes that SmileSQL adds to sqlglot's. Different spellings of the same thing give equal nodes.

Every ordinary function call is an `exp.Anonymous` (`this` is the name as written, `expressions` the arguments), so that
only the catalogue of functions decides which functions exist. The exceptions are the aggregates (`AGGREGATES` and
`NestedGroup`), `exp.Cast`, `exp.Extract`, `exp.Case`, `exp.Exists` and `SilenceCall`. SQL's calls with keywords become
plain calls: SUBSTRING(s FROM a FOR n) is SUBSTRING(s, a, n), TRIM(LEADING c FROM s) is LTRIM(s, c), POSITION(a IN s) is
STRPOS(s, a).
"""

from collections.abc import Mapping
from typing import ClassVar, Final, cast

from sqlglot import exp


class BestClause(exp.Expression):
    """`BEST k BY expr [DESC], … [PER column, …]`. A SELECT stores it as `args["best"]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "by": True, "per": False}

    @property
    def k(self) -> exp.Literal:
        return cast(exp.Literal, self.args["this"])

    @property
    def by(self) -> list[exp.Ordered]:
        return cast(list[exp.Ordered], self.args["by"])

    @property
    def zone(self) -> exp.Literal | None:
        return self.args.get("zone")

    @property
    def per(self) -> list[exp.Column]:
        return self.args.get("per") or []


class SilenceCall(exp.Expression, exp.Condition):
    """`SILENCE(tick [PER column, …])`: the distance to the next event."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "per": False}

    @property
    def zone(self) -> exp.Literal | None:
        return self.args.get("zone")

    @property
    def per(self) -> list[exp.Column]:
        return self.args.get("per") or []


class Latest(exp.Expression, exp.AggFunc):
    """`LATEST(expr)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Earliest(exp.Expression, exp.AggFunc):
    """`EARLIEST(expr)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


AGGREGATES: Final[Mapping[str, type[exp.AggFunc]]] = {
    "SUM": exp.Sum,
    "COUNT": exp.Count,
    "MIN": exp.Min,
    "MAX": exp.Max,
    "AVG": exp.Avg,
    "LATEST": Latest,
    "EARLIEST": Earliest,
}
"""The aggregates of one argument. MMPL has the same names."""


class Percentile(exp.Expression, exp.AggFunc):
    """`PERCENTILE_CONT(fraction) WITHIN GROUP (ORDER BY expr [DESC])`. A percentile without WITHIN GROUP has no `this`
    yet."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False, "fraction": True, "descending": False}

    @property
    def fraction(self) -> exp.Expr:
        return cast(exp.Expr, self.args["fraction"])

    @property
    def descending(self) -> bool:
        return bool(self.args.get("descending"))


class PercentileCont(Percentile):
    """The value at the fraction of the ordered values, between two of them if need be."""


class PercentileDisc(Percentile):
    """The first value that at least the fraction of all values do not exceed."""


PERCENTILES: Final[Mapping[str, type[Percentile]]] = {
    "PERCENTILE_CONT": PercentileCont,
    "PERCENTILE_DISC": PercentileDisc,
}

QUANTILE_SYNONYMS: Final[Mapping[str, str]] = {
    "PERCENTILE": "PERCENTILE_CONT",
    "QUANTILE_CONT": "PERCENTILE_CONT",
    "QUANTILE": "PERCENTILE_DISC",
    "QUANTILE_DISC": "PERCENTILE_DISC",
    "APPROX_PERCENTILE": "PERCENTILE_DISC",
    "APPROX_QUANTILE": "PERCENTILE_DISC",
    "PERCENTILE_APPROX": "PERCENTILE_DISC",
}
"""Names of other dialects, with the value and the fraction as arguments. All of them are exact."""


class StringAggregate(exp.Expression, exp.AggFunc):
    """`STRING_AGG([DISTINCT] expr, separator [ORDER BY expr [DESC], …])`. The separator is a string. `DISTINCT` texts
    have no other `order` than their own, which may be `descending`."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "separator": True,
        "order": False,
        "distinct": False,
        "descending": False,
    }

    @property
    def order(self) -> list[exp.Ordered]:
        return self.args.get("order") or []

    @property
    def is_distinct(self) -> bool:
        return bool(self.args.get("distinct"))

    @property
    def descending(self) -> bool:
        return bool(self.args.get("descending"))


class ArrayAggregate(exp.Expression, exp.AggFunc):
    """`ARRAY_AGG([DISTINCT] expr [ORDER BY expr [DESC], …]) [FILTER (WHERE filter)]`, as StringAggregate."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "order": False,
        "distinct": False,
        "descending": False,
        "filter": False,
    }

    @property
    def order(self) -> list[exp.Ordered]:
        return self.args.get("order") or []

    @property
    def is_distinct(self) -> bool:
        return bool(self.args.get("distinct"))

    @property
    def descending(self) -> bool:
        return bool(self.args.get("descending"))

    @property
    def filter(self) -> exp.Expr | None:
        return self.args.get("filter")


STRING_AGGREGATE_SYNONYMS: Final[Mapping[str, str]] = {"STRING_AGG": "", "LISTAGG": "", "GROUP_CONCAT": ","}
"""The names of STRING_AGG, with the separator that each has by default; STRING_AGG itself has none."""


DERIVED_AGGREGATES: Final[Mapping[str, type[exp.AggFunc]]] = {
    "BOOL_AND": exp.LogicalAnd,
    "BOOL_OR": exp.LogicalOr,
    "STDDEV_SAMP": exp.StddevSamp,
    "STDDEV_POP": exp.StddevPop,
    "VAR_SAMP": exp.Variance,
    "VAR_POP": exp.VariancePop,
    "ARG_MAX": exp.ArgMax,
    "ARG_MIN": exp.ArgMin,
}
"""The aggregates that are expressions over those of MMPL. ARG_MAX and ARG_MIN have two arguments, the others one."""

AGGREGATE_SYNONYMS: Final[Mapping[str, str]] = {
    "EVERY": "BOOL_AND",
    "STDDEV": "STDDEV_SAMP",
    "VARIANCE": "VAR_SAMP",
    "MAX_BY": "ARG_MAX",
    "MIN_BY": "ARG_MIN",
    "FIRST_VALUE": "EARLIEST",
    "LAST_VALUE": "LATEST",
}
"""Other names of aggregates, in other dialects."""

RANKING_FUNCTIONS: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK")
"""The functions that number the rows of a partition, with OVER."""


NEIGHBOUR_FUNCTIONS: Final = ("LAG", "LEAD")
"""The functions that give a value of a row before or after, with OVER."""


class NestedGroup(exp.Expression, exp.AggFunc):
    """`GROUP(a, b) AS x`: the columns of the members, as a nested relation."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    is_var_len_args = True


class StreamFunction(exp.Expression):
    """TUMBLE, HOP, SESSION, LAST or MERGE. It is a relation: in FROM, in JOIN, or as the argument of another one.

    `kind` is its name in lower case. A relation is an `exp.Table`, an `exp.Subquery` or a `StreamFunction`. MERGE has
    relations only. The others have one relation, a column and intervals; HOP has them in the order (slide, size).
    SESSION also has the columns of PARTITION BY in `per`. TUMBLE may have a time zone.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "relations": True,
        "column": False,
        "intervals": False,
        "per": False,
        "zone": False,
        "alias": False,
    }

    @property
    def kind(self) -> str:
        return cast(str, self.args["this"])

    @property
    def relations(self) -> list[exp.Expr]:
        return cast(list[exp.Expr], self.args["relations"])

    @property
    def column(self) -> exp.Column | None:
        return self.args.get("column")

    @property
    def intervals(self) -> list[exp.Expr]:
        return self.args.get("intervals") or []

    @property
    def zone(self) -> exp.Literal | None:
        return self.args.get("zone")

    @property
    def per(self) -> list[exp.Column]:
        return self.args.get("per") or []
