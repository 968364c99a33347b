"""Two links over a network that loses, repeats, delays and reorders messages and breaks connections, in simulated time;
and models of what is exported and imported, which know the truth at every time."""

import heapq
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.links.exports import EventsRange, Export, RowsFrame, StreamExport, ViewExport
from smile.links.imports import Import, StreamImport, ViewImport
from smile.links.link import Link, LinkIdentity
from smile.links.messages import OpenImport, OriginRange, StreamHorizons, decode_packet, encode_message

Rows = dict[str, int]


@dataclass
class StreamModel:
    """A stream with several origins, which are known up to their horizons."""

    events: dict[str, dict[int, str]] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    removed_to: int = HORIZON_MIN
    version: int = 0
    starts: dict[str, int] = field(default_factory=dict)
    """If it has many origins, the start of each."""

    def publish(self, origin: str, tick: int, text: str | None) -> None:
        """An event; None for silence."""
        assert tick > self.known.get(origin, HORIZON_MIN)
        self.known[origin] = tick
        if text is not None:
            self.events.setdefault(origin, {})[tick] = text

    def horizons(self) -> Mapping[str, int]:
        return self.known

    def received(self, origin: str) -> int:
        return HORIZON_MIN

    def read(self, origin: str, lo: int, hi: int) -> EventsRange:
        if lo < self.removed_to:
            raise error("E097", "removed")
        ticks = [t for t in sorted(self.events.get(origin, {})) if lo < t <= hi]
        if len(ticks) > 5:
            ticks, hi = ticks[:5], ticks[4]
        body = json.dumps({t: self.events[origin][t] for t in ticks}).encode() if ticks else b""
        return EventsRange(hi, body, len(ticks))

    def members(self) -> tuple[int, bytes]:
        return (self.version, json.dumps(self.starts).encode()) if self.starts else (0, b"")

    def join(self, origin: str) -> None:
        """A new origin of a stream with many. The first one is the home, and the others start above everything that it
        has announced."""
        self.starts[origin] = self.known[HOME] + 1 if self.starts else 0
        self.known[origin] = self.starts[origin]
        self.version += 1

    def close(self) -> None:
        return


HOME = "0"


@dataclass
class StreamSinkModel:
    """Checks that its horizon, the least of the origins that it knows, never passes the start of another one. `truth`
    is the stream."""

    truth: StreamModel
    events: dict[str, dict[int, str]] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    version: int = 0
    starts: dict[str, int] = field(default_factory=dict)

    def horizons(self) -> Mapping[str, int]:
        return dict(self.known)

    def start(self) -> int:
        return HORIZON_MIN

    def members(self) -> int:
        return self.version

    def append_members(self, version: int, body: bytes) -> None:
        assert version > self.version, "an older membership"
        self.version, self.starts = version, json.loads(body)
        for origin, start in self.starts.items():
            self.known[origin] = max(start, self.known.get(origin, start))

    def questions(self, now: float) -> list[OriginRange]:
        return []

    def receive_answer(self, origin: str, lo: int, hi: int, body: bytes) -> None:
        return

    def receive_gone(self, origin: str, lo: int, hi: int) -> None:
        return

    def append(self, origin: str, lo: int, hi: int, body: bytes, members: int) -> None:
        horizon = self.known.get(origin, HORIZON_MIN)
        assert lo <= horizon and (horizon < hi or hi <= self.starts.get(origin, HORIZON_MIN)), "a gap, or nothing new"
        for tick, text in json.loads(body or b"{}").items():
            assert lo < int(tick) <= hi
            if int(tick) > horizon:
                self.events.setdefault(origin, {})[int(tick)] = text
        self.known[origin] = max(hi, horizon)
        least = min(self.known.values())
        for other, start in self.truth.starts.items():
            assert other in self.starts or least < start, f"passed the start of origin {other}, which is not known"


@dataclass
class ViewModel:
    """The rows of a view with their change numbers. `snapshots` has the rows at all earlier horizons. A hidden row is
    None."""

    rows: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    last_change: int = 0
    horizon: int = HORIZON_MIN
    snapshots: dict[int, Rows] = field(default_factory=lambda: {HORIZON_MIN: {}})
    expired_up_to: int = 0
    changes_by_horizon: dict[int, int] = field(default_factory=lambda: {HORIZON_MIN: 0})
    """The last change at each horizon of this run."""

    def change(self, changes: Mapping[str, int | None], horizon: int) -> None:
        for key, value in changes.items():
            self.last_change += 1
            self.rows[key] = (value, self.last_change)
        self.horizon = horizon
        self.snapshots[horizon] = self.shown()
        self.changes_by_horizon[horizon] = self.last_change

    def change_at(self, horizon: int) -> int:
        """The change after which a cursor continues whose reader knows everything up to the horizon; -1 if it must
        begin anew."""
        return -1 if horizon == HORIZON_MIN else self.changes_by_horizon.get(horizon, -1)

    def shown(self) -> Rows:
        return {key: value for key, (value, _) in self.rows.items() if value is not None}

    def expire_hidden(self) -> None:
        """Forgets rows that are hidden: a cursor before them has to begin anew."""
        hidden = [key for key, (value, _) in self.rows.items() if value is None]
        self.expired_up_to = max([self.expired_up_to, *(self.rows[key][1] for key in hidden)])
        for key in hidden:
            del self.rows[key]

    def horizons(self) -> StreamHorizons:
        return {"S": {"0": self.horizon}}


class ViewCursorModel:
    def __init__(self, view: ViewModel, change: int) -> None:
        self.view, self.change = view, change
        self.sent_horizon: int | None = None
        self.wants_all = change < 0
        self.reset_change = 0
        """The last change at the latest new beginning: rows that were hidden before it need not be known."""

    def seek(self, change: int) -> None:
        if change < 0:
            self.wants_all = True
        elif change <= self.change:
            self.change = change
        self.sent_horizon = None

    def next_frame(self) -> RowsFrame | None:
        view = self.view
        first = -1 if self.wants_all or max(self.change, self.reset_change) < view.expired_up_to else self.change
        if first < 0:
            self.reset_change = view.last_change
        changed = sorted((n, key, value) for key, (value, n) in view.rows.items() if n > first)
        if first >= 0 and not changed and self.sent_horizon == view.horizon:
            return None
        is_complete = len(changed) <= 4
        changed = changed[:4]
        self.change = view.last_change if is_complete else changed[-1][0]
        self.wants_all = False
        if is_complete:
            self.sent_horizon = view.horizon
        body = json.dumps({key: value for _, key, value in changed}).encode() if changed else b""
        return RowsFrame(first, self.change, view.horizons() if is_complete else None, body)

    def close(self) -> None:
        return


@dataclass
class ViewSinkModel:
    """Checks that the rows after every frame are those of the view at the frame's horizons."""

    truth: ViewModel
    rows: Rows = field(default_factory=dict)
    known: StreamHorizons = field(default_factory=dict)
    resets: int = 0

    def horizons(self) -> StreamHorizons:
        return self.known

    def append(self, start: StreamHorizons | None, bodies: list[bytes], end: StreamHorizons) -> None:
        assert start is None or start == self.known, "a gap"
        if start is None:
            self.rows, self.resets = {}, self.resets + 1
        for body in bodies:
            for key, value in json.loads(body).items():
                self.rows.pop(key, None)
                if value is not None:
                    self.rows[key] = value
        horizon = end["S"]["0"]
        assert horizon >= self.known.get("S", {}).get("0", HORIZON_MIN), "horizons fell"
        assert self.rows == self.truth.snapshots[horizon], f"wrong rows at horizon {horizon}"
        self.known = end


@dataclass
class ImporterModel:
    """The imports of the importing broker."""

    present: Mapping[int, Import] = field(default_factory=dict)
    acknowledged: Callable[[int], StreamHorizons] = lambda _: {}
    can_store: bool = True
    received_number: int = 0
    last_stored_number: int = 0

    def greet(self, neighbour: str) -> None:
        return

    def imports(self, now: float) -> Mapping[int, Import]:
        return self.present

    def note_received(self, number: int) -> None:
        self.received_number = number

    def stored_number(self) -> int:
        if self.can_store:
            self.last_stored_number = self.received_number
        return self.last_stored_number


@dataclass
class ExporterModel:
    """A broker with one stream and one view. A restart changes `run`, and the view's change numbers begin anew."""

    stream: StreamModel = field(default_factory=StreamModel)
    view: ViewModel = field(default_factory=ViewModel)
    run: str = "run 1"
    acknowledged: dict[str, StreamHorizons] = field(default_factory=dict)

    def open(self, neighbour: str, request: OpenImport, wake: Callable[[], None]) -> tuple[Export, int]:
        if request.definition != "right":
            raise error("E124", f"{request.relation} has another type")
        if request.relation == "stream":
            known = request.horizons.get("stream", {})
            return StreamExport(request.id, self.stream, known, HORIZON_MIN, request.members), -1
        change = self.view.change_at(request.horizons.get("S", {}).get("0", HORIZON_MIN))
        return ViewExport(request.id, ViewCursorModel(self.view, change)), change

    def acknowledge(self, neighbour: str, relation: str, horizons: StreamHorizons) -> None:
        self.acknowledged[relation] = horizons

    def release(self, neighbour: str, relation: str) -> None:
        self.acknowledged.pop(relation, None)

    def restart(self) -> None:
        self.run += "'"
        shown = self.view.shown()
        self.view.rows, self.view.last_change, self.view.expired_up_to = {}, 0, 0
        for key, value in shown.items():
            self.view.last_change += 1
            self.view.rows[key] = (value, self.view.last_change)
        self.view.changes_by_horizon = {self.view.horizon: self.view.last_change}


@dataclass
class Faults:
    """How likely each fault is, for each packet; `broken` for each second. Without bundles, each message is a packet."""

    lost: float = 0.0
    repeated: float = 0.0
    delayed: float = 0.0
    broken: float = 0.0
    has_bundles: bool = True


@dataclass
class NetworkFigures:
    sent_bytes: int = 0
    lost_bytes: int = 0
    messages: int = 0


class LossyNetwork:
    """`downstream` imports both relations of `exporter`. Call `run` to let time pass."""

    def __init__(self, random: Random, exporter: ExporterModel, faults: Faults) -> None:
        self.random, self.exporter, self.faults = random, exporter, faults
        self.now = 0.0
        self.figures = NetworkFigures()
        self.stream_sink, self.view_sink = StreamSinkModel(exporter.stream), ViewSinkModel(exporter.view)
        self.imports: dict[int, Import] = {}
        self.links: list[Link] = []
        self._packets: list[tuple[float, int, int, Link, bytes]] = []
        self._sequence = 0
        self._connect_at = 0.0

    # ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self) -> None:
        self.imports = {
            0: StreamImport(0, OpenImport(0, "stream", "right"), self.stream_sink, self.random, self.now),
            1: ViewImport(1, OpenImport(1, "view", "right"), self.view_sink, self.random, self.now),
        }
        self.importer = ImporterModel(self.imports, self._acknowledged)
        down = Link(LinkIdentity("down", "a"), self.importer, ExporterModel(), self.now)
        up = Link(LinkIdentity("up", self.exporter.run), ImporterModel(), self.exporter, self.now)
        self.links = [down, up]

    def disconnect(self, wait_s: float = 0.0) -> None:
        for link in self.links:
            link.close()
        self.links, self._packets = [], []
        self._connect_at = self.now + wait_s

    def _acknowledged(self, import_id: int) -> StreamHorizons:
        return {"stream": dict(self.stream_sink.known)} if import_id == 0 else self.view_sink.known

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            if not self.links and self.now >= self._connect_at:
                self.connect()
            try:
                self._step()
            except SmileError:
                self.disconnect(0.1)
            if self.now >= end:
                return
            deadlines = [link.deadline for link in self.links] or [self._connect_at]
            next_time = min([end, *deadlines, *(packet[0] for packet in self._packets[:1])])
            elapsed_s = max(next_time - self.now, 0.001)
            if self.links and self.random.random() < self.faults.broken * elapsed_s:
                self.disconnect(self.random.uniform(0, 1))
            self.now = min(self.now + elapsed_s, end)

    def _step(self) -> None:
        while self._packets and self._packets[0][0] <= self.now:
            _, _, _, link, packet = heapq.heappop(self._packets)
            link.receive(packet, self.now)
        for side, link in enumerate(self.links):
            link.poll(self.now)
            packets = link.take_packets()
            if not self.faults.has_bundles:
                packets = [encode_message(*message) for packet in packets for message in decode_packet(packet)]
            for packet in packets:
                self._send(side, packet)

    def _send(self, side: int, packet: bytes) -> None:
        random, faults = self.random, self.faults
        self.figures.sent_bytes += len(packet)
        self.figures.messages += 1
        if random.random() < faults.lost:
            self.figures.lost_bytes += len(packet)
            return
        for _ in range(2 if random.random() < faults.repeated else 1):
            delay_s = random.uniform(0.1, 1.0) if random.random() < faults.delayed else 0.005
            self._sequence += 1
            target = self.links[1 - side]
            heapq.heappush(self._packets, (self.now + delay_s, self._sequence, side, target, packet))

    # ── checks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_caught_up(self) -> bool:
        return (
            self.stream_sink.known == dict(self.exporter.stream.known)
            and self.stream_sink.events == self.exporter.stream.events
            and self.view_sink.rows == self.exporter.view.shown()
            and self.view_sink.known == self.exporter.view.horizons()
        )
