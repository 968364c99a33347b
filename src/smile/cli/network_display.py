"""Draws a network of brokers in a terminal: what each broker knows, its links, and rows of a view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from smile.cli.view_display import ViewDisplay, age_text
from smile.client.ticks import TICKS_PER_SECOND
from smile.demo.broker_network import NetworkLink
from smile.horizons import CLOCK_TICK_MIN

Json = dict[str, Any]

LATE_S = 2.0
"""What is known less far than this is highlighted."""
WIDE = 100
"""In a terminal of so many columns, links have all their columns."""
NON_ROW_LINES = 4
"""Lines besides brokers, links and the view: headers and empty lines."""


@dataclass(frozen=True)
class LinkView:
    """A link, and for how long it has been cut; None if it is not."""

    link: NetworkLink
    cut_for_s: float | None


def broker_horizons(status: Json) -> dict[str, dict[str, int]]:
    """For each base stream, the ticks up to which the views of a broker know it, by the way on which it comes: the
    import, or empty text if it comes directly. Streams without a view are included."""
    horizons: dict[str, dict[str, int]] = {}
    for view in status["views"].values():
        for path, tick in view["horizons"].items():
            way, _, stream = path.rpartition("/")
            horizons.setdefault(stream, {}).setdefault(way, int(tick))
    for stream, stream_status in status["streams"].items():
        horizons.setdefault(stream, {"": int(stream_status["horizon"])})
    return horizons


def import_behind_s(status: Json, neighbour: str) -> float | None:
    """How far behind the imports from a neighbour were, at most, when the status was made; None if nothing has arrived
    yet."""
    ages = [i["behind_s"] for i in status["imports"].values() if i["broker"] == neighbour]
    if not ages or any(age is None for age in ages) or max(ages) * TICKS_PER_SECOND > CLOCK_TICK_MIN:
        return None
    return float(max(ages))


def views_behind_s(status: Json, neighbour: str) -> float | None:
    """How far behind the views of a broker were on what comes from a neighbour; None if they know nothing of it."""
    imports = {name for name, i in status["imports"].items() if i["broker"] == neighbour}
    ticks = [
        tick
        for stream, ways in broker_horizons(status).items()
        for way, tick in ways.items()
        if (way or stream).partition("/")[0] in imports
    ]
    if not ticks or min(ticks) < CLOCK_TICK_MIN:
        return None
    return float(status["at"]) - min(ticks) / TICKS_PER_SECOND


class NetworkDisplay:
    """`streams` are the columns of the table of brokers."""

    def __init__(self, streams: Sequence[str], view_display: ViewDisplay) -> None:
        self._streams, self._view_display = streams, view_display

    def render(
        self,
        statuses: Mapping[str, Json],
        links: Sequence[LinkView],
        lines: Sequence[str],
        size: tuple[int, int],
    ) -> Group:
        """`lines` are shown at the end; `size` is that of the terminal, width first."""
        width, height = size
        room = max(6, height - NON_ROW_LINES - len(statuses) - len(links) - len(lines))
        return Group(
            self._brokers(statuses),
            Text(),
            self._links(statuses, links, width),
            Text(),
            self._view_display.render(width, room),
            *(Text(line, style="bold", no_wrap=True, overflow="ellipsis") for line in lines),
        )

    def _brokers(self, statuses: Mapping[str, Json]) -> Table:
        table = new_table("broker", "shows", "rows")
        table.columns[2].justify = "right"
        for stream in self._streams:
            table.add_column(f"{stream} behind", justify="right", no_wrap=True)
        for name, status in statuses.items():
            horizons = broker_horizons(status)
            cells = [_ages(horizons.get(stream, {}), float(status["at"])) for stream in self._streams]
            rows = sum(view["rows"] for view in status["views"].values())
            table.add_row(name, ", ".join(status["views"]), f"{rows:,}", *cells)
        return table

    def _links(self, statuses: Mapping[str, Json], links: Sequence[LinkView], width: int) -> Table:
        is_wide = width >= WIDE
        table = new_table("key", "link", "carries", "state")
        for title in ("rows/s", "kB/s", *(("delay", "questions") if is_wide else ()), "behind"):
            table.add_column(title, justify="right", no_wrap=True)
        for number, view in enumerate(links, 1):
            caller, called = view.link.caller, view.link.called
            at_caller, at_called = find_link(statuses[caller], called), find_link(statuses[called], caller)
            carries = [name for name, i in statuses[caller]["imports"].items() if i["broker"] == called]
            received = at_caller.get("received", {"rows_per_s": 0.0, "bytes_per_s": 0.0})
            behind = import_behind_s(statuses[caller], called)
            delay = at_called.get("delay_ms")
            extra = [
                "" if delay is None else f"{delay:,.1f} ms",
                f"{at_caller.get('questions_asked', 0):,}",
            ]
            table.add_row(
                str(number),
                f"{caller} ← {called}",
                ", ".join(carries),
                _state(at_caller, view.cut_for_s),
                f"{received['rows_per_s']:,.0f}",
                f"{received['bytes_per_s'] / 1e3:,.1f}",
                *(extra if is_wide else []),
                _age(behind),
            )
        return table


def new_table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def find_link(status: Json, neighbour: str) -> Json:
    links: list[Json] = [link for link in status["links"] if link["neighbour"] == neighbour]
    return next((link for link in links if link["state"] == "open"), links[0] if links else {"state": "absent"})


def _state(link: Json, cut_for_s: float | None) -> Text:
    """What the broker says of its link; a cut that it has not noticed yet is shown as well."""
    state = str(link["state"])
    if cut_for_s is None:
        return Text(state, style="green" if state == "open" else "yellow")
    return Text(f"CUT {cut_for_s:,.0f} s, {state}", style="bold red")


def _ages(horizons: Mapping[str, int], now: float) -> Text:
    """How long ago each way is known to have been complete. Ways that agree are one."""
    ages = [now - tick / TICKS_PER_SECOND if tick >= CLOCK_TICK_MIN else None for tick in horizons.values()]
    if not ages:
        return Text()
    known = [age for age in ages if age is not None]
    if len(known) == len(ages) and max(known) - min(known) < LATE_S / 2:
        return _age(max(known))
    return Text(" | ").join(_age(age) for age in ages)


def _age(age: float | None) -> Text:
    if age is None:
        return Text("nothing", style="bold red")
    return Text(age_text(max(0.0, age)), style="bold red" if age > LATE_S else "")
