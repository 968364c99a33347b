"""When a stream may get another definition: further columns that may be NULL, which earlier events do not have."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.trees import columns_in


def is_extension(stream: mmpl.StreamDef, earlier: mmpl.StreamDef) -> bool:
    """Whether every event of the earlier definition is one of this definition, with NULL in the added columns. These
    come last. Other brokers know the definition of a stream with many origins and of a global one, and filters store
    whole rows of a table's changes: these have the same columns for good."""
    if stream == earlier:
        return True
    if stream.many_origins or stream.is_global or stream.is_table:
        return False
    count = len(earlier.columns)
    if stream.columns[:count] != earlier.columns or not set(earlier.checks) <= set(stream.checks):
        return False
    if replace(stream, columns=earlier.columns, checks=earlier.checks) != earlier:
        return False
    added = dict(stream.columns[count:])
    added_checks = [check for check in stream.checks if check not in earlier.checks]
    return all(
        columns_in(check) <= set(added) and evaluate_expr(check, dict.fromkeys(added), added) is not False
        for check in added_checks
    )
