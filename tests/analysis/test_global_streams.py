"""What programs say of global streams, and what their views receive of them."""

import pytest

from smile import limits
from smile.algebra.printer import print_expression, print_program
from smile.errors import SmileError
from smile.program import compile_program
from smile.source import Source

NTP = 'CREATE GLOBAL STREAM ntp (t: time, tool: string, "from": string -> latency: int);\n'


def test_a_condition_that_is_too_long_is_evaluated_by_the_view_alone() -> None:
    names = ", ".join(f"'tool{n:05}'" for n in range(2_000))
    view = f"CREATE VIEW v AS SELECT * FROM ntp WHERE tool IN ({names}) AND \"from\" = 'hw'; SUBSCRIBE v;"
    (import_,) = compile_program(Source("p.smile", NTP + view), is_networked=True).rewritten.imports
    assert import_.condition is not None and print_expression(import_.condition) == "from = 'hw'"


def test_a_program_in_mmpl_is_checked_too() -> None:
    correct = NTP + "ADVERTISE ntp WHERE tool = 'a' AS S; CREATE REPUBLISHER R AS SELECT * FROM ntp WHERE tool = 'a'"
    text = print_program(compile_program(Source("p.smile", correct + " WITH (HISTORY = INTERVAL '1' HOUR);")).original)
    assert compile_program(Source("p.mmpl", text)).original.republishers
    too_long = f"tool = '{'x' * limits.filter_chars_max}'"
    for old, new, codes in (
        ("tool = 'a'", "tool = 'a' OR latency > 5", ["E176", "E177"]),
        ("tool = 'a'", too_long, ["E175", "E175"]),
        ("ADVERTISE ntp", "ADVERTISE other", ["E180"]),
    ):
        assert old in text
        with pytest.raises(SmileError) as caught:
            compile_program(Source("p.mmpl", text.replace(old, new)))
        assert sorted(d.code for d in caught.value.diagnostics) == codes
        assert all(d.span is not None for d in caught.value.diagnostics)
