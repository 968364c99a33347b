"""Subscribers of every kind: quick, slow, stalled, reconnecting with old and new tokens, with conditions, over
WebSockets, as server-sent events, by snapshots and with SMILE's own client.

Each checks that every message has the format of the interface, and stores what it receives.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import httpx
from websockets.asyncio.client import ClientConnection, connect

from smile.client import Frame, connect_async
from smile.errors import SmileError
from tests.torture import floor
from tests.torture.publishers import ANSWER_S, LOST, RETRY_S, World
from tests.torture.witness import Horizons, Json, Progress, Reset, Session, Table, Witness

FRAME_ROWS_MAX = 500
TOKENS_KEPT = 4


@dataclass(frozen=True)
class Token:
    """With what its subscriber knew when it was given."""

    text: str
    rows: dict[str, Json]
    progress: Horizons


class Subscriber:
    """It has received everything once its progress is `wanted`, and ends then."""

    def __init__(self, world: World, who: str, view: str, where: Json, seed: int) -> None:
        self.world, self.view, self.where = world, view, where
        self.who = f"{who} ({type(self).__name__} of {view}{where or ''})"
        self.random = Random(seed)
        self.wanted: Horizons | None = None
        self.progress: Horizons = {}
        self.tokens: list[Token] = []
        self.session = Session(self.who, view, where)
        self.table = Table()

    @property
    def witness(self) -> Witness:
        return self.world.witness

    async def run(self) -> None:
        while not self.is_done():
            try:
                await self.connection()
            except LOST:
                await asyncio.sleep(RETRY_S)

    async def connection(self) -> None:
        raise NotImplementedError

    def is_done(self) -> bool:
        wanted = self.wanted
        return wanted is not None and all(self.progress.get(s, -1) >= tick for s, tick in wanted.items())

    def wrong(self, what: str) -> None:
        self.witness.wrong(f"{self.who}: {what}")

    # ── what it is told ─────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, token: Token | None) -> None:
        rows, progress = ({}, None) if token is None else (token.rows, token.progress)
        self.session = Session(self.who, self.view, self.where, dict(rows), progress)
        self.witness.sessions.append(self.session)
        self.witness.count("sessions")
        self.table = Table(rows)

    def take(self, reset: bool, rows: list[Json], progress: Horizons | None, token: str | None) -> None:
        entries: list[Json | Progress | Reset] = [Reset()] if reset else []
        entries += rows
        if progress is not None:
            entries.append(Progress(progress))
        for entry in entries:
            self.table.take(entry)
        self.session.entries += entries
        self.witness.count("rows", len(rows))
        if progress is not None:
            self.witness.hear(progress)
            self.progress = progress
            if token is not None:
                self.tokens = [*self.tokens[1 - TOKENS_KEPT :], Token(token, dict(self.table.rows), progress)]

    def check_row(self, row: Json, columns: Mapping[str, str], key: list[str]) -> None:
        given = {*row} - {"stays"}
        is_gone = row.get("deleted") is True
        wanted = {"view", "key", "final", "steps"} | ({"deleted"} if is_gone else {"row", "knowledge"})
        if given != wanted or row["view"] != self.view or [*row["key"]] != key:
            self.wrong(f"this is no row: {row}")
        elif not is_gone:
            if [*row["key"], *row["row"]] != [*columns] or not {*row["knowledge"]} <= {*row["row"]}:
                self.wrong(f"{row} does not have the columns {[*columns]}")
            if row["final"] and not all("exactly" in known for known in row["knowledge"].values()):
                self.wrong(f"{row} is final, and not known")

    def token(self) -> Token | None:
        """To go on from: mostly the newest, sometimes an older one, sometimes none."""
        if not self.tokens or self.random.random() < 0.1:
            return None
        return self.tokens[-1] if self.random.random() < 0.7 else self.random.choice(self.tokens)


class Follower(Subscriber):
    """Over a WebSocket. What sets kinds of it apart is how they read."""

    window: int | None = None

    async def connection(self) -> None:
        async with connect(
            self.world.websocket, compression=None, ping_interval=None, close_timeout=1, max_queue=4, max_size=2**26
        ) as socket:
            await self._subscribe(socket, self.token())
            await self.read(socket)

    async def read(self, socket: ClientConnection) -> None:
        while not self.is_done():
            await self.frame(socket)

    async def _subscribe(self, socket: ClientConnection, token: Token | None) -> None:
        message: Json = {"subscribe": self.view, "id": 3}
        message |= {"where": self.where} if self.where else {}
        message |= {"window": self.window} if self.window else {}
        message |= {"resume": token.text} if token else {}
        await socket.send(json.dumps(message))
        answer = json.loads(await asyncio.wait_for(socket.recv(), ANSWER_S))
        if "subscribed" not in answer:
            raise self._refusal(answer)
        if {*answer} != {"id", "subscribed", "key", "columns", "streams"} or answer["subscribed"] != self.view:
            self.wrong(f"this is no answer to a subscription: {answer}")
        self._heading = answer
        self._resumed = token is not None
        self._n = self._acked = 0
        self.begin(token)

    def _refusal(self, answer: Json) -> Exception:
        code = answer.get("error", {}).get("code")
        if code == "E098":
            return ConnectionError("the broker is stopping")
        self.wrong(f"refused: {answer}")
        return ConnectionError(str(answer))

    async def frame(self, socket: ClientConnection) -> None:
        message = json.loads(await socket.recv())
        if "error" in message or "ended" in message:
            raise self._refusal(message)
        self._n += 1
        allowed = {"id", "n", "rows", "reset", "progress", "resume"}
        if message["id"] != 3 or message["n"] != self._n or not {"rows"} <= {*message} <= allowed:
            self.wrong(f"this is not frame {self._n}: { {k: v for k, v in message.items() if k != 'rows'} }")
        if self._n == 1 and not self._resumed and message.get("reset") is not True:
            self.wrong("a subscription without a token began without a snapshot")
        if ("progress" in message) != ("resume" in message) or len(message["rows"]) > FRAME_ROWS_MAX:
            self.wrong(f"this is no frame: {message}")
        if self.window and message["n"] > self._acked + self.window:
            self.wrong(f"frame {message['n']} came, and {self._acked} was acknowledged")
        for row in message["rows"]:
            self.check_row(row, self._heading["columns"], self._heading["key"])
        progress = {s: int(t) for s, t in message["progress"].items()} if "progress" in message else None
        if progress is not None and {*progress} != {*self._heading["streams"]}:
            self.wrong(f"progress of {[*progress]}, and the streams are {self._heading['streams']}")
        self.take("reset" in message, message["rows"], progress, message.get("resume"))
        if (self.window and self.random.random() < 0.7) or (self.window and self._n - self._acked >= self.window):
            self._acked = self._n
            await socket.send(json.dumps({"ack": 3, "n": self._n}))


class Slow(Follower):
    window = 2

    async def read(self, socket: ClientConnection) -> None:
        while not self.is_done():
            await self.frame(socket)
            if self.wanted is None:
                await asyncio.sleep(self.random.uniform(0.0, 0.4))


class Stalling(Follower):
    """Reads nothing for long."""

    async def read(self, socket: ClientConnection) -> None:
        while not self.is_done():
            for _ in range(self.random.randint(1, 5)):
                await self.frame(socket)
                if self.is_done():
                    return
            if self.wanted is None:
                await asyncio.sleep(self.random.uniform(1.0, 4.0))


class Coming(Follower):
    """Leaves, in order or not, and comes back."""

    async def read(self, socket: ClientConnection) -> None:
        for _ in range(self.random.randint(1, 12)):
            await self.frame(socket)
            if self.is_done():
                return
        if self.random.random() < 0.3:
            await socket.send(json.dumps({"unsubscribe": 3}))
            while "unsubscribed" not in json.loads(await asyncio.wait_for(socket.recv(), ANSWER_S)):
                pass
        elif self.random.random() < 0.5:
            socket.transport.abort()
        if self.wanted is None:
            await asyncio.sleep(self.random.uniform(0.0, 0.5))


class ServerSent(Subscriber):
    """Reads server-sent events, and comes back with the last id."""

    async def connection(self) -> None:
        token = self.tokens[-1] if self.tokens else None
        headers = {"last-event-id": token.text} if token else {}
        params = {f"where.{column}": value for column, value in self.where.items()}
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_S) as client:
            url = f"{self.world.url}/views/{self.view}/changes"
            async with client.stream("GET", url, headers=headers, params=params) as answer:
                if answer.status_code == 503:
                    raise ConnectionError("the broker is stopping")
                if answer.status_code != 200:
                    self.wrong(f"refused: {answer.status_code} {await answer.aread()!r}")
                    raise ConnectionError(str(answer.status_code))
                self.begin(token)
                await self._events(answer)

    async def _events(self, answer: httpx.Response) -> None:
        event: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
                continue
            message = json.loads(event["data"]) if "data" in event else {}
            match event.get("event"):
                case "reset":
                    self.take(True, [], None, None)
                case "change":
                    self.take(False, [message], None, None)
                case "progress":
                    progress = {stream: int(tick) for stream, tick in message["progress"].items()}
                    self.take(False, [], progress, event["id"])
            event = {}
            if self.is_done():
                return


class Polling(Subscriber):
    """Asks for snapshots, each not older than the last."""

    async def connection(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_S) as client:
            while not self.is_done():
                params = {f"where.{column}": value for column, value in self.where.items()}
                params |= {f"after.{stream}": str(tick) for stream, tick in self.progress.items()}
                answer = await client.get(f"{self.world.url}/views/{self.view}", params=params | {"format": "json"})
                if answer.status_code in (503, 504):
                    await asyncio.sleep(RETRY_S)
                    continue
                if answer.status_code != 200:
                    self.wrong(f"refused: {answer.status_code} {answer.text}")
                    raise ConnectionError(answer.text)
                body = answer.json()
                before = Token("", dict(self.table.rows), self.progress) if self.progress else None
                self.begin(before)
                self.take(True, body["rows"], {s: int(t) for s, t in body["progress"].items()}, None)
                await asyncio.sleep(self.random.uniform(0.05, 0.4))


class ByClient(Subscriber):
    """SMILE's own client, which reconnects and resumes by itself: its changes, and its table."""

    async def connection(self) -> None:
        try:
            client = await connect_async(self.world.url, timeout=ANSWER_S)
        except SmileError as problem:
            raise ConnectionError(str(problem)) from None
        try:
            subscription = await client.subscribe(self.view, where=self.where)
            table = await client.table(self.view, where=self.where)
            self.begin(None)
            while not self.is_done():
                frame: Frame = await subscription.frame()
                rows = [change.to_json() for change in frame.changes]
                self.take(False, rows, frame.progress, None)
            await table.wait_for(self.wanted or {}, ANSWER_S)
            mine = {str(row.key): row.row for row in table}
            snapshot = {
                str(change.key): change.row for change in await client.snapshot(self.view, self.where, self.wanted)
            }
            if mine != snapshot:
                self.wrong(f"the table has {mine}, a snapshot {snapshot}")
        finally:
            await client.close()


Kind = type[Subscriber]
KINDS: tuple[Kind, ...] = (Follower, Follower, Slow, Stalling, Coming, Coming, ServerSent, Polling, ByClient)


def crowd(world: World, random: Random) -> list[Subscriber]:
    """One of each kind at least, and every view."""
    kinds = [*KINDS, *random.choices(KINDS, k=3)]
    views = [*random.sample(floor.VIEWS, len(floor.VIEWS)), *random.choices(floor.VIEWS, k=len(kinds))]
    random.shuffle(kinds)
    members = []
    for i, (kind, view) in enumerate(zip(kinds, views, strict=False)):
        values = floor.HOSTS if view == "Peaks" else floor.ISSUES
        where = {floor.FILTERS[view]: random.choice(values)} if random.random() < 0.4 else {}
        members.append(kind(world, f"s{i}", view, where, random.randrange(2**32)))
    return members
