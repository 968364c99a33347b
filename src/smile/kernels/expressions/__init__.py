"""Expressions over columns of knowledge, compiled: the same results as row by row, all rows at once."""

from smile.kernels.expressions.compile import Expression, compile_expression

__all__ = ["Expression", "compile_expression"]
