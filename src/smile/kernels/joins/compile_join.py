"""Chooses the transform of a join, by its kind, its key columns, and whether these evolve."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.kernels.joins.evolving_join import EvolvingJoin
from smile.kernels.joins.inner_join import InnerJoin
from smile.kernels.joins.join_sides import JoinSides, SideName
from smile.kernels.joins.keyed_join import FullKeyedJoin, TotalKeyedJoin
from smile.kernels.joins.lookup_join import LookupJoin
from smile.kernels.joins.outer_join import OuterJoin
from smile.kernels.transform import InputRelation, OutputRelation, Transform
from smile.kernels.unsupported_join import UnsupportedJoinError


def compile_join(rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> Transform:
    """The transform of a join of any kind but semi, anti and match."""
    sides = JoinSides(rel, left, right, output)
    if sides.has_evolving_keys:
        return EvolvingJoin(rel, left, right, output)
    if sides.left.total and sides.right.total and not sides.has_extra_conditions:
        return TotalKeyedJoin(rel, left, right, output)
    if rel.kind == "full" and output.type.heading.key == sides.left.key:
        return FullKeyedJoin(rel, left, right, output)
    if sides.right.covers_key and rel.kind in ("inner", "left"):
        if rel.kind == "inner" and not sides.right.total:
            return InnerJoin(rel, left, right, output)
        return LookupJoin(rel, left, right, output, "left")
    if sides.left.covers_key and rel.kind == "right":
        return LookupJoin(rel, left, right, output, "right")
    if rel.kind == "inner":
        return (
            LookupJoin(rel, left, right, output, "right") if sides.left.total else InnerJoin(rel, left, right, output)
        )
    if sides.left.total and sides.right.total:
        raise UnsupportedJoinError(
            rel, "both sides of the outer join have a row for every key, and the join condition uses more than keys"
        )
    if sides.left.total or sides.right.total:
        probe: SideName = "left" if sides.right.total else "right"
        return OuterJoin(rel, left, right, output, LookupJoin(replace(rel, kind="inner"), left, right, output, probe))
    return OuterJoin(rel, left, right, output, InnerJoin(rel, left, right, output))
