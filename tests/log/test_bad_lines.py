"""Every invalid line is refused with its position, a reason and, where possible, a hint."""

import pytest

from smile import limits
from smile.algebra.types import TICK_MAX
from smile.decoding.event_decoder import EventDecoder
from smile.errors import CATALOGUE, SmileError
from smile.log.recorded_events import EventError, EventReader
from tests.log.reading import event_reader, tolerant_reader

FIRST = '{"stream":"Bids","at":7,"event":{"issue":"IBM","price":1,"#bid":2}}'


def kinds(event: str) -> str:
    return f'{{"stream":"Kinds","at":100,"event":{event}}}'


BAD: list[tuple[str, str, str, str | None]] = [
    # not JSON
    ('{"stream":"Kinds","event":{}', "E073", "the line is not JSON: expecting ',' delimiter", None),
    ("nonsense", "E073", "the line is not JSON: expecting value", None),
    ('{"stream":"Kinds","event":{}} {}', "E073", "the line is not JSON: extra data", None),
    ("{'stream':'Kinds'}", "E073", "property name enclosed in double quotes", None),
    (kinds('{"i":01}'), "E073", "not JSON", None),
    (kinds('{"d":1.}'), "E073", "not JSON", None),
    (kinds('{"d":+1}'), "E073", "not JSON", None),
    (kinds('{"s":"a\tb"}'), "E073", "control character", None),
    ("[" * 100_000, "E073", "nested too deeply", None),
    (kinds('{"d":' * 50_000), "E073", "nested too deeply", None),
    # neither an event nor a silence
    ("null", "E074", "a line must be an object, not null", "on one line"),
    ("3", "E074", "not 3", None),
    ('"text"', "E074", 'not "text"', None),
    ("[]", "E074", "not an array", "one event per line"),
    ("{}", "E074", "neither an event nor a silence_to", None),
    ('{"stream":"Kinds"}', "E074", "neither an event nor a silence_to", None),
    ('{"at":5}', "E074", "neither an event nor a silence_to", None),
    ('{"event":{}}', "E074", "does not name its stream", None),
    ('{"stream":3,"event":{}}', "E074", "must be text, not 3", None),
    ('{"stream":null,"silence_to":9}', "E074", "must be text, not null", None),
    ('{"stream":"Kinds","event":null}', "E074", "not null", None),
    ('{"stream":"Kinds","event":[1]}', "E074", "not an array", None),
    ('{"stream":"Kinds","event":{},"silence_to":9}', "E074", "a silence has no event", None),
    ('{"stream":"Kinds","at":3,"silence_to":9}', "E074", "a silence has no at", None),
    ('{"steam":"Kinds","event":{}}', "E074", 'there is no field "steam"', "Did you mean stream?"),
    ('{"stream":"Kinds","event":{},"note":1}', "E074", 'there is no field "note"', None),
    # names
    ('{"stream":"Kinds","at":9,"at":9,"event":{}}', "E075", 'the name "at" is given twice', None),
    ('{"silence_to":9,"silence_to":9}', "E075", 'the name "silence_to" is given twice', None),
    ('{"stream":"Kinds","silence_to":9,"stream":"Kinds"}', "E075", 'the name "stream" is given twice', None),
    (kinds('{"i":1,"i":1}'), "E075", 'the name "i" is given twice', None),
    (kinds('{"i":1,"\\u0069":1}'), "E075", 'the name "i" is given twice', None),
    ('{"stream":"Kinds","event":{"i":1},"event":{}}', "E075", 'the name "event" is given twice', None),
    ('{"stream":"kinds","event":{}}', "E076", "there is no stream kinds", "Did you mean Kinds?"),
    ('{"stream":"Elsewhere","event":{}}', "E076", "there is no stream Elsewhere", "There are Bids, Kinds."),
    ('{"stream":"Elsewhere","silence_to":3}', "E076", "there is no stream Elsewhere", None),
    ('{"stream":"Bids","event":{"bid":3}}', "E077", "bid is the tick of Bids, not a column", "Give the tick as `at`."),
    ('{"stream":"Bids","event":{"pric":3}}', "E077", "Bids has no column pric", "Did you mean price?"),
    ('{"stream":"Bids","event":{"Price":3}}', "E077", "Bids has no column Price", "Did you mean price?"),
    ('{"stream":"Bids","event":{"volume":3}}', "E077", "Bids has no column volume", "It has issue, price, #bid."),
    # values
    (kinds('{"i":1.5}'), "E078", "Kinds.i: 1.5 is not an int", "Write a whole number"),
    (kinds('{"i":1e-2}'), "E078", "1e-2 is not an int", None),
    (kinds('{"i":9007199254740993.0}'), "E078", "9007199254740993.0 is not an int", None),
    (kinds('{"i":"1.5"}'), "E078", '"1.5" is not an int', None),
    (kinds('{"p":-1.0}'), "E078", "-1.0 is not a time", None),
    (kinds('{"i":true}'), "E078", "true is not an int", None),
    (kinds('{"i":"abc"}'), "E078", '"abc" is not an int', None),
    (kinds('{"i":""}'), "E078", '"" is not an int', None),
    (kinds('{"i":9223372036854775808}'), "E078", "9223372036854775808 is out of range for int", None),
    (kinds('{"i":"9223372036854775808"}'), "E078", "is out of range for int", None),
    (kinds(f'{{"i":{"9" * 5000}}}'), "E078", "a number of 5,000 characters is out of range", None),
    (kinds(f'{{"p":"{"9" * 5000}"}}'), "E078", "a text of 5,000 characters is not a time", None),
    (kinds('{"i":[1]}'), "E078", "an array is not an int", None),
    (kinds('{"i":{"i":1}}'), "E078", "an object is not an int", None),
    (kinds('{"x":NaN}'), "E078", "NaN is not a JSON number", "null"),
    (kinds('{"x":-Infinity}'), "E078", "-Infinity is not a JSON number", None),
    (kinds('{"x":1e400}'), "E078", "1e400 is out of range for float", None),
    (kinds('{"x":"NaN"}'), "E078", '"NaN" is not a float', "null for no value"),
    (kinds('{"x":false}'), "E078", "false is not a float", None),
    (kinds('{"d":1000}'), "E078", "1000 is out of range for decimal(5, 2)", None),
    (kinds('{"d":999.995}'), "E078", "999.995 is out of range", None),
    (kinds('{"d":"NaN"}'), "E078", '"NaN" is not a decimal', None),
    (kinds('{"d":"1_0"}'), "E078", '"1_0" is not a decimal', None),
    (kinds('{"d":true}'), "E078", "true is not a decimal", None),
    (kinds('{"d":{}}'), "E078", "an object is not a decimal", None),
    (kinds('{"o":1}'), "E078", "1 is not true or false", None),
    (kinds('{"o":"true"}'), "E078", '"true" is not true or false', None),
    (kinds('{"s":1}'), "E078", "1 is not a string", "in quotes"),
    (kinds('{"s":"\\ud800"}'), "E078", "half of a surrogate pair", None),
    (kinds('{"y":"00ff"}'), "E078", '"00ff" is not bytes', 'such as "\\\\x0aff"'),
    (kinds('{"y":"\\\\xzz"}'), "E078", "is not bytes", None),
    (kinds('{"y":0}'), "E078", "0 is not bytes", None),
    (kinds('{"m":"3 months"}'), "E078", '"3 months" is not an interval', None),
    (kinds('{"ts":"yesterday"}'), "E078", '"yesterday" is not a timestamp', None),
    (kinds('{"ts":9223372036854775807}'), "E078", "is out of range for timestamp", None),
    (kinds('{"p":-1}'), "E078", "-1 is out of range for time", f"from 0 to {TICK_MAX}"),
    (kinds(f'{{"p":"{TICK_MAX + 1}"}}'), "E078", "is out of range for time", None),
    (kinds('{"p":"2999-01-01 00:00:00"}'), "E078", '"2999-01-01 00:00:00" is out of range for time', None),
    (kinds('{"day":"2024-13-01"}'), "E078", '"2024-13-01" is not a date', None),
    (kinds('{"day":1.5}'), "E078", "1.5 is not a date", None),
    (kinds('{"day":99999999}'), "E078", "is out of range for date", None),
    # ticks
    ('{"stream":"Kinds","at":-1,"event":{}}', "E079", "at is -1, which is not a tick", f"from 0 to {TICK_MAX}"),
    ('{"stream":"Kinds","at":1.5,"event":{}}', "E079", "at is 1.5", None),
    ('{"stream":"Kinds","at":null,"event":{}}', "E079", "at is null", None),
    ('{"stream":"Kinds","at":true,"event":{}}', "E079", "at is true", None),
    ('{"stream":"Kinds","at":"soon","event":{}}', "E079", 'at is "soon"', None),
    ('{"stream":"Kinds","at":9223372036854775807,"event":{}}', "E079", "at is 9223372036854775807", None),
    (f'{{"stream":"Kinds","at":1{"0" * 6000},"event":{{}}}}', "E079", "at is 1000", None),
    ('{"silence_to":9223372036854775808}', "E079", "silence_to is 9223372036854775808", None),
    ('{"silence_to":-5}', "E079", "silence_to is -5", None),
    ('{"silence_to":{}}', "E079", "silence_to is an object", None),
    # contradictions of the stream's CHECKs and of earlier lines
    ('{"stream":"Bids","at":8,"event":{"price":-5}}', "E080", "Bids requires price >= 0, but price is -5", None),
    (kinds('{"p":101}'), "E080", "Kinds requires p <= t, but t is 100, p is 101", None),
    ('{"stream":"Bids","at":7,"event":{"issue":"IBM","price":1,"#bid":3}}', "E082", "another event at tick 7", None),
    (
        '{"stream":"Bids","at":6,"event":{}}',
        "E081",
        "Bids has no event at tick 6, and is complete up to tick 7",
        "silent",
    ),
]


@pytest.mark.parametrize(("line", "code", "message", "hint"), BAD, ids=lambda value: str(value)[:50])
def test_a_bad_line_is_refused(line: str, code: str, message: str, hint: str | None) -> None:
    with pytest.raises(EventError) as failure:
        list(event_reader(f"{FIRST}\n\n{line}\n").batches(10))
    problem = failure.value
    assert problem.diagnostics == [problem.bad.diagnostic]
    assert problem.bad.diagnostic.code == code
    assert message in problem.bad.diagnostic.message
    assert hint is None or hint in (problem.bad.diagnostic.hint or "")
    assert str(problem).startswith("events.ndjson:3: ")
    assert problem.bad.render().startswith("events.ndjson:3:")
    assert max(map(len, problem.bad.render().splitlines())) < 300
    assert problem.bad.raw == line.encode()


@pytest.mark.parametrize(("line", "code", "message", "hint"), BAD, ids=lambda value: str(value)[:50])
def test_a_bad_line_is_skipped(line: str, code: str, message: str, hint: str | None) -> None:
    """The following lines are read as if the bad line did not exist."""
    after = '{"stream":"Kinds","event":{"i":1}}\n{"stream":"Bids","event":{"price":3}}'
    read, bad = tolerant_reader(f"{FIRST}\n{line}\n{after}\n")
    without = event_reader(f"{FIRST}\n{after}\n")
    assert list(read.batches(2))[-1].horizons == list(without.batches(10))[-1].horizons == {"Bids": 9, "Kinds": 8}
    assert [(b.number, b.diagnostic.code) for b in bad] == [(2, code)]


def test_every_code_has_a_line() -> None:
    """E070 is about files, E071 and E072 have tests of their own, and E083 is about several origins."""
    codes = {code for code in CATALOGUE if "E070" <= code <= "E083"}
    assert {code for _, code, _, _ in BAD} == codes - {"E070", "E071", "E072", "E083"}


def refusal(text: bytes) -> EventError:
    with pytest.raises(EventError) as failure:
        list(event_reader(text).batches(10))
    return failure.value


def test_the_position_and_the_excerpt() -> None:
    assert refusal(b'\n{"stream":"Bids","event":{"price":true}}\n').bad.render() == (
        "events.ndjson:2:27: error E078: Bids.price: true is not an int\n"
        '  {"stream":"Bids","event":{"price":true}}\n'
        "                            ^^^^^^^\n"
        "  hint: Write a whole number of 64 bits, such as 42; one beyond 2^53 may be text."
    )


def test_a_line_that_is_not_text() -> None:
    problem = refusal('{"stream":"Kinds","event":{"s":"é'.encode() + b'\xff"}}')
    assert problem.bad.diagnostic.code == "E072"
    assert problem.bad.render().startswith("events.ndjson:1:34: error E072: the line is not UTF-8 text: byte 0xff")


def test_a_line_that_is_too_long() -> None:
    long = kinds(f'{{"s":"{"x" * limits.event_line_bytes_max}"}}').encode()
    problem = refusal(FIRST.encode() + b"\n" + long + b"\n")
    assert problem.bad.diagnostic.code == "E071"
    assert str(problem) == "events.ndjson:2: the line has more than 1,048,576 bytes"
    fits = kinds(f'{{"s":"{"x" * (limits.event_line_bytes_max - len(kinds("{}")) - len(chr(34) * 4) - 2)}"}}')
    assert len(fits) <= limits.event_line_bytes_max
    assert len(list(event_reader(fits).batches(1))) == 1


@pytest.mark.parametrize("cut", range(1, len(FIRST) - 1))
def test_a_last_line_that_is_cut_off(cut: int) -> None:
    problem = refusal(FIRST.encode() + b"\n" + FIRST[:cut].encode())
    assert problem.bad.diagnostic.code == "E073"
    assert problem.bad.diagnostic.message == "the last line is cut off, or not JSON"
    assert "incomplete" in (problem.bad.diagnostic.hint or "")
    assert problem.bad.number == 2


def test_after_the_end() -> None:
    done = b'{"stream":"Kinds","silence_to":9223372036854775807}\n'
    problem = refusal(done + b'{"stream":"Kinds","event":{}}')
    assert (problem.bad.diagnostic.code, problem.bad.number) == ("E079", 2)
    problem = refusal(done + b'{"stream":"Kinds","at":5,"event":{}}')
    assert problem.bad.diagnostic.message == "Kinds has no event at tick 5, and is complete up to its end"


def test_a_file_that_breaks_while_it_is_read() -> None:
    class Broken:
        def read(self, size: int) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(SmileError, match="disk cannot be read: Input/output error"):
        list(EventReader(EventDecoder([]), Broken(), "disk").batches(1))  # type: ignore[arg-type]
