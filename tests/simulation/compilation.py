"""Compiles each program once. The brokers of a simulation start again and again with the same programs, and parsing,
types and plans depend on nothing else than the text of a program.

What was parsed is used again in other simulations of the process, which have many definitions in common. Everything else
is forgotten with its simulation: a bug may be planted in the next one.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from smile.algebra import parser
from smile.analysis import recorded_types, type_analysis
from smile.analysis.export_description import read_definition
from smile.broker.network.descriptions import ImportRecords
from smile.engine.generation import Generation
from smile.engine.plan import Plan
from smile.program import CompiledProgram
from smile.source import Source

PARSED_MAX = 2_000
_parsed: dict[Any, Any] = {}
"""By what `parser._parse` is called with."""


@contextmanager
def memoized_compilation() -> Iterator[None]:
    """Within it, what was compiled is used again."""
    if len(_parsed) > PARSED_MAX:
        _parsed.clear()
    with ExitStack() as stack:
        for owner, name, replacement in (
            (parser, "_parse", _memoized(parser._parse, results=_parsed)),
            (type_analysis, "stream_type", _memoized(type_analysis.stream_type)),
            (recorded_types, "read_definition", _memoized(read_definition, json.dumps)),
            (Generation, "plan", _memoized_plan()),
            (Generation, "from_json", staticmethod(_memoized(Generation.from_json, json.dumps))),
            (ImportRecords, "compile", _memoized_compile()),
        ):
            stack.enter_context(patch.object(owner, name, replacement))
        yield


def _memoized(
    function: Callable[..., Any],
    key: Callable[[Any], Any] = lambda arguments: arguments,
    results: dict[Any, Any] | None = None,
) -> Any:
    """Errors are not remembered."""
    results = {} if results is None else results

    def look_up(*arguments: Any) -> Any:
        arguments_key = key(arguments)
        if arguments_key not in results:
            results[arguments_key] = function(*arguments)
        return results[arguments_key]

    return look_up


def _memoized_plan() -> Callable[[Generation, int], Plan]:
    """A plan has no state: engines have it."""
    make_plan, plans = Generation.plan, dict[Any, Plan]()

    def plan(generation: Generation, partitions: int) -> Plan:
        key = partitions, json.dumps(generation.to_json())
        if key not in plans:
            plans[key] = make_plan(generation, partitions)
        return plans[key]

    return plan


def _memoized_compile() -> Callable[[ImportRecords, Source, bool, bool], tuple[CompiledProgram, ImportRecords]]:
    """Every call returns new objects, since brokers tell programs apart by identity."""
    compile_, results = ImportRecords.compile, dict[Any, tuple[CompiledProgram, ImportRecords]]()

    def compile_once(
        records: ImportRecords, source: Source, leaves_out_missing: bool = False, leaves_out_broken: bool = False
    ) -> tuple[CompiledProgram, ImportRecords]:
        routed = tuple(records.routed.items())
        key = source, leaves_out_missing, leaves_out_broken, routed, json.dumps([records.types, records.editions])
        if key not in results:
            results[key] = compile_(records, source, leaves_out_missing, leaves_out_broken)
        compiled, new_records = results[key]
        return replace(compiled), replace(new_records)

    return compile_once
