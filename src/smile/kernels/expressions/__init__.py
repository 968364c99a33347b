"""Compiled expressions over columns of knowledge: the results of row-by-row evaluation, for all rows at once."""

from smile.kernels.expressions.compile import Expression, compile_expression

__all__ = ["Expression", "compile_expression"]
