"""The program that runs: shown, changed as a whole, or by a view. Changes are made one after the other."""

from collections.abc import Callable
from typing import Any

from smile import limits
from smile.errors import SmileError, error
from smile.gateway import edits
from smile.gateway.access import Right
from smile.gateway.answers import TEXT, Answer, Faulty, Refused, encode
from smile.gateway.calls import Call, logger
from smile.knowledge.types import Course, RelationType
from smile.program import Compiled
from smile.source import Source

MMPL = "text/x-mmpl"


async def show(call: Call) -> Answer:
    call.require(Right.admin)
    form = call.query(("format",)).get("format", "text")
    compiled = call.gateway.broker.compiled
    if form == "text":
        is_mmpl = compiled.source.name.lower().endswith(".mmpl")
        kind = f"{MMPL}; charset=utf-8".encode() if is_mmpl else TEXT
        return Answer(compiled.source.text.encode(errors="replace"), 200, kind)
    if form != "json":
        raise error("E093", f"there is no format {form[:100]!r}", hint="There are text, json.")
    return Answer(encode(described(compiled, set(call.gateway.broker.views))))


def described(compiled: Compiled, subscribed: set[str]) -> dict[str, Any]:
    """Streams and views, as a reader of either needs to know them."""
    program, relations = compiled.written, compiled.analysis.relations
    return {
        "program": compiled.source.text,
        "streams": {
            stream.name: {
                "tick": stream.tick,
                "columns": {name: str(data) for name, data in stream.columns},
                "publisher_timed": stream.publisher_timed,
            }
            for stream in program.streams
        },
        "views": {
            view.name: {"subscribed": view.name in subscribed, **_relation(relations[view.name])}
            for view in program.views
            if view.name in relations
        },
    }


def _relation(type_: RelationType) -> dict[str, Any]:
    hides = type_.mask.course is not Course.DECIDED
    columns = {
        name: {
            "type": str(column.data),
            "domain": f"masked {column.domain}" if hides and column.domain != "key" else column.domain,
            "evolves": column.evolves,
            "nullable": column.nullable,
        }
        for name, column in type_.columns.items()
    }
    return {"key": list(type_.heading.key), "columns": columns}


async def apply(call: Call) -> Answer:
    call.require(Right.admin)
    query = call.query(("dry_run",))
    dry_run = query.get("dry_run", "false")
    if dry_run not in ("true", "false"):
        raise error("E093", f"dry_run: {dry_run[:100]!r} is neither true nor false")
    kind = (call.header(b"content-type") or "text/plain").partition(";")[0].strip().lower()
    source = Source("program.mmpl" if kind == MMPL else "program.smile", await _text(call))
    if dry_run == "true":
        return Answer(encode(await _told(call, source, lambda: call.gateway.broker.difference(source))))
    return await _changed(call, source, lambda: source)


async def add_view(call: Call) -> Answer:
    call.require(Right.admin)
    call.query(())
    broker = call.gateway.broker
    own = Source(broker.compiled.source.name, await _text(call))
    answer = await _changed(call, own, lambda: edits.with_views(broker.compiled, own.text))
    return Answer(answer.body, 201)


async def drop_view(call: Call) -> Answer:
    call.require(Right.admin)
    call.query(())
    broker = call.gateway.broker
    return await _changed(call, None, lambda: edits.without_view(broker.compiled, broker.view(call.name).name))


async def _changed(call: Call, own: Source | None, edit: Callable[[], Source]) -> Answer:
    """`edit` says what the program becomes, from what it is when its turn has come."""
    broker = call.gateway.broker
    async with call.gateway.program_turn:
        difference = await _told(call, own, lambda: broker.apply(edit()))
    logger.info("the program was changed", extra={"principal": call.visitor.principal})
    return Answer(encode(difference))


async def _told(call: Call, own: Source | None, function: Callable[[], Any]) -> Any:
    try:
        return await call.in_thread(function)
    except SmileError as problem:
        raise (Faulty(problem, own) if own else problem) from None


async def _text(call: Call) -> str:
    try:
        body = await call.body(limits.program_bytes_max)
    except Refused as problem:
        raise Refused(413, "E003", f"the program has more than {limits.program_bytes_max:,} bytes") from problem
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error("E002", f"the program is not UTF-8 text: offset {problem.start}") from None
