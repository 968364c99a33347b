"""Draws a grid in a terminal: who asks whom for what, and rows of a view of its consumer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from smile.cli.network_display import find_link, new_table
from smile.cli.view_display import ViewDisplay

Json = dict[str, Any]

LEGEND = "R1@r1: republisher R1 at r1 · ntp@hw: the producers at hw · ≠ is true of NULL"
FOR_WIDTH_MIN, FOR_WIDTH_MAX = 20, 60
OTHER_COLUMNS_WIDTH = 46
"""Of the table of requests, without what is asked for."""
NON_ROW_LINES = 4
"""Lines besides requests, the view and the lines at the end: headers, the legend and empty lines."""


@dataclass(frozen=True)
class GridBroker:
    """A broker that asks others. `key` kills or revives it, if there is one. `registry` and `status` are its latest
    reports, None if it does not run. `killed_for_s` is None if it was not killed."""

    name: str
    key: str
    registry: Json | None
    status: Json | None
    killed_for_s: float | None = None

    @property
    def plans(self) -> Sequence[Json]:
        return () if self.registry is None else self.registry["plans"]

    @property
    def asked(self) -> dict[str, list[str]]:
        """Whom each of its plans asks, by the condition of the plan."""
        return {plan["where"]: [source_name(source) for source in plan["sources"]] for plan in self.plans}


def source_name(source: Mapping[str, str]) -> str:
    return f"{source['stream']}@{source['broker']}"


def condition_text(where: str) -> str:
    return "everything" if where in ("", "TRUE") else where.replace(" IS DISTINCT FROM ", " ≠ ")


class GridDisplay:
    def __init__(self, view_display: ViewDisplay) -> None:
        self._view_display = view_display

    def render(self, brokers: Sequence[GridBroker], lines: Sequence[str], size: tuple[int, int]) -> Group:
        """`lines` are shown at the end; `size` is that of the terminal, width first."""
        width, height = size
        requests = self._requests(brokers, width)
        room = max(6, height - NON_ROW_LINES - requests.row_count - len(lines))
        return Group(
            requests,
            Text(LEGEND, style="dim", no_wrap=True, overflow="ellipsis"),
            Text(),
            self._view_display.render(width, room),
            *(Text(line, style="bold", no_wrap=True, overflow="ellipsis") for line in lines),
        )

    def _requests(self, brokers: Sequence[GridBroker], width: int) -> Table:
        table = new_table("key", "who", "asks", "for", "rows/s", "state")
        table.columns[3].width = min(FOR_WIDTH_MAX, max(FOR_WIDTH_MIN, width - OTHER_COLUMNS_WIDTH))
        table.columns[4].justify = "right"
        for broker in brokers:
            rows = list(_request_rows(broker)) or [("", "", "", "")]
            for number, (who, asks, what, rate) in enumerate(rows):
                key, state = (broker.key, _state(broker)) if not number else ("", Text())
                is_same = number > 0 and rows[number - 1][0] == who
                table.add_row(key, "" if is_same else who or broker.name, asks, what, rate, state)
        return table


def _request_rows(broker: GridBroker) -> Iterator[tuple[str, str, str, str]]:
    """Who, asks whom, for what, rows a second on the link. Sources of plans that end are marked."""
    shown_links = set[str]()
    for plan in broker.plans:
        who = f"{plan['name']}@{broker.name}" if plan["republisher"] else broker.name
        for kind in ("sources", "ending", "absent"):
            for source in plan[kind]:
                mark = "" if kind == "sources" else f" ({kind})"
                link = {} if broker.status is None else find_link(broker.status, source["broker"])
                rate = link.get("received", {}).get("rows_per_s")
                is_new = source["broker"] not in shown_links
                shown_links.add(source["broker"])
                rate_text = f"{rate:,.0f}" if rate is not None and is_new else ""
                yield who, source_name(source), condition_text(source["where"]) + mark, rate_text


def _state(broker: GridBroker) -> Text:
    if broker.killed_for_s is not None:
        return Text(f"KILLED {broker.killed_for_s:,.0f} s", style="bold red")
    return Text("up", style="green") if broker.registry is not None else Text("starting", style="yellow")
