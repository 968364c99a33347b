"""`smile dead-letters`: lists what connectors could not pass on, retries it, and drops it."""

import json
import sys
import time
from typing import Annotated, Any

import typer

from smile.cli.client import CaOption, UrlOption, report_errors

Json = dict[str, Any]


def dead_letters(
    retry: Annotated[
        list[int] | None, typer.Option("--retry", metavar="ID", help="Publish this event, or post this row, again.")
    ] = None,
    drop: Annotated[list[int] | None, typer.Option("--drop", metavar="ID", help="Forget this one for good.")] = None,
    everything: Annotated[bool, typer.Option("--retry-all", help="Retry all of them, the oldest first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line, with the whole text.")] = False,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """List the dead letters of connectors: events that a stream has refused, and rows that a webhook's receiver has
    refused, each with the reason. They stay until they are retried or dropped.

    It needs ADMIN ON program; set SMILE_TOKEN if the broker requires a token.

    Example: smile dead-letters --retry 7
    """
    import asyncio  # noqa: PLC0415  # slow to import, as the following

    from smile.client.address import BrokerAddress  # noqa: PLC0415
    from smile.client.connection import http_request  # noqa: PLC0415
    from smile.errors import SmileError  # noqa: PLC0415

    with report_errors():
        address = BrokerAddress.resolve(url, ca=ca)

        def request(method: str, path: str) -> Json:
            answer: Json = json.loads(asyncio.run(http_request(address, method, f"/dead-letters{path}")))
            return answer

        def list_all() -> list[Json]:
            letters, after = list[Json](), 0
            while True:
                page = request("GET", f"?after={after}")
                letters += page["letters"]
                if page["next"] is None:
                    return letters
                after = page["next"]

        changes = [("DELETE", f"/{id_}", f"dropped {id_}") for id_ in drop or ()]
        retried = [letter["id"] for letter in list_all()] if everything else retry or ()
        changes += [("POST", f"/{id_}/retry", f"retried {id_}") for id_ in retried]
        if not (changes or everything):
            letters = list_all()
            lines = [json.dumps(letter, ensure_ascii=False, separators=(",", ":")) for letter in letters]
            print("\n".join(lines) if as_json else letters_text(letters, time.time()), flush=True)
            return
        failed = 0
        for method, path, text in changes:
            try:
                request(method, path)
                print(text, flush=True)
            except SmileError as problem:
                if len(changes) == 1:
                    raise
                failed += 1
                print(f"smile: {path.strip('/').partition('/')[0]}: {problem.message}", file=sys.stderr)
        if failed:
            raise typer.Exit(1)


def letters_text(letters: list[Json], now: float) -> str:
    if not letters:
        return "there are no dead letters"
    return "\n".join(
        f"{letter['id']}  {letter['connector']}, {letter['subject']}, {now - letter['at']:,.0f} s ago\n"
        f"    {letter['code']}: {letter['message']}\n    {_shortened(letter['body'])}"
        for letter in letters
    )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_CHARS else f"{line[: _TEXT_CHARS - 1]}…"


_TEXT_CHARS = 200


def register(app: typer.Typer) -> None:
    app.command("dead-letters")(dead_letters)
