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
    def per(self) -> list[exp.Column]:
        return self.args.get("per") or []


class SilenceCall(exp.Expression, exp.Condition):
    """`SILENCE(tick [PER column, …])`: the distance to the next event."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "per": False}

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


class NestedGroup(exp.Expression, exp.AggFunc):
    """`GROUP(a, b) AS x`: the columns of the members, as a nested relation."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    is_var_len_args = True


class StreamFunction(exp.Expression):
    """TUMBLE, HOP, LAST or MERGE. It is used as a relation: in FROM, in JOIN, or as the argument of another one.

    `kind` is its name in lower case. A relation is an `exp.Table`, an `exp.Subquery` or a `StreamFunction`. MERGE has
    relations only. The others have one relation, a column and intervals; HOP has them in the order (slide, size).
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "relations": True,
        "column": False,
        "intervals": False,
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
