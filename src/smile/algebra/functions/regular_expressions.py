"""Functions of regular expressions, in the syntax of RE2. Matching takes time proportional to the text.

As in PostgreSQL, a dot matches a newline too, and ^ and $ match only at the ends of the text. RE2 is part of Arrow.
"""

import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra.functions.base import NOT_MONOTONE, ScalarFunction, Signature, fixed_signature
from smile.algebra.types import BOOL, STRING, Value

PATTERN_ARGUMENT: Final = 1
"""The argument of each of these functions that is the regular expression."""


def regular_expression_error(pattern: str) -> str | None:
    """Why a text is not a regular expression; None if it is one."""
    try:
        pc.match_substring_regex(pa.array([""]), _with_flags(pattern, ""))
    except pa.ArrowInvalid as problem:
        return str(problem).removeprefix("Invalid regular expression: ")
    return None


def _with_flags(pattern: str, flags: str) -> str:
    return f"(?s{'i' if 'i' in flags else ''}:{pattern})"


def _like(text: str, pattern: str, flags: str = "") -> Value:
    """Whether the pattern matches a part of the text. The flag `i` ignores case."""
    if not set(flags) <= {"c", "i"}:
        return None
    return _first(pc.match_substring_regex(pa.array([text]), _with_flags(pattern, flags)))


def _replace(text: str, pattern: str, replacement: str, flags: str = "") -> Value:
    r"""Replaces the first match, or all of them with the flag `g`. \1 is the first group, \& the match."""
    if not set(flags) <= {"c", "i", "g"}:
        return None
    return _first(
        pc.replace_substring_regex(
            pa.array([text]),
            _with_flags(pattern, flags),
            re.sub(r"\\(.)", lambda escape: r"\0" if escape[1] == "&" else escape[0], replacement, flags=re.DOTALL),
            max_replacements=None if "g" in flags else 1,
        )
    )


def _substr(text: str, pattern: str) -> Value:
    """The first part of the text that matches; NULL if there is none."""
    if not _like(text, pattern):
        return None
    around = f"(?s)^.*?({_with_flags(pattern, '')}).*$"
    return _first(pc.replace_substring_regex(pa.array([text]), around, r"\1", max_replacements=1))


def _first(column: Any) -> Value:
    value: Value = column[0].as_py()
    return value


def _function(name: str, arguments: int, result: Any, compute: Any, optional: int) -> ScalarFunction:
    def apply(values: tuple[Value, ...], signature: Signature) -> Value:
        try:
            return compute(*values)  # type: ignore[no-any-return]  # the type of the result is that of the signature
        except pa.ArrowInvalid:
            return None

    resolve = fixed_signature((STRING,) * arguments, result, optional)
    return ScalarFunction(name, (arguments - optional, arguments), resolve, apply, (NOT_MONOTONE,), partial=True)


FUNCTIONS: Final = (
    _function("regexp_like", 3, BOOL, _like, 1),
    _function("regexp_replace", 4, STRING, _replace, 1),
    _function("regexp_substr", 2, STRING, _substr, 0),
)
