"""Which transform a join is: it follows from the join's kind, from what is equated, and from whether that evolves."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.kernels.joins.by_key import BothTotal, OneRowFull
from smile.kernels.joins.moving import Moving
from smile.kernels.joins.one_row import OneRow
from smile.kernels.joins.outer import Outer
from smile.kernels.joins.pairs import Pairs
from smile.kernels.joins.sides import Sides, Which
from smile.kernels.refused import Refused
from smile.kernels.transform import Input, Output, Transform


def compile_join(rel: mmpl.Join, left: Input, right: Input, output: Output) -> Transform:
    """Of all kinds but semi, anti and match."""
    sides = Sides(rel, left, right, output)
    if sides.moving:
        return Moving(rel, left, right, output)
    if sides.left.total and sides.right.total and not sides.extra:
        return BothTotal(rel, left, right, output)
    if rel.kind == "full" and output.type.heading.key == sides.left.key:
        return OneRowFull(rel, left, right, output)
    if sides.right.whole and rel.kind in ("inner", "left"):
        if rel.kind == "inner" and not sides.right.total:
            return Pairs(rel, left, right, output)
        return OneRow(rel, left, right, output, "left")
    if sides.left.whole and rel.kind == "right":
        return OneRow(rel, left, right, output, "right")
    if rel.kind == "inner":
        return OneRow(rel, left, right, output, "right") if sides.left.total else Pairs(rel, left, right, output)
    if sides.left.total and sides.right.total:
        raise Refused(rel, "both sides of the outer join have a row for every key, and more than keys is joined on")
    if sides.left.total or sides.right.total:
        asking: Which = "left" if sides.right.total else "right"
        return Outer(rel, left, right, output, OneRow(replace(rel, kind="inner"), left, right, output, asking))
    return Outer(rel, left, right, output, Pairs(rel, left, right, output))
