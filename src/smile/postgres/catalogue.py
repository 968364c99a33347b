"""What is in the database's catalogue: event types, advertisements, subscriptions, links, and tables of views."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from smile.algebra import mmpl
from smile.algebra.types import SIMPLE_TYPES, DataType, decimal_type
from smile.horizons import END
from smile.postgres.database import Connection

TICK_COLUMN = "tick"


@dataclass(frozen=True)
class EventType:
    """`columns` have types of SMILE. `is_table`: it has the changes of a table. `is_dropped`: events that were
    published before may still come."""

    id: int
    name: str
    columns: tuple[tuple[str, DataType], ...]
    is_table: bool = False
    is_dropped: bool = False
    table_name: str | None = None
    """The name of the table, if it exists, no other relation has its name, and all its rows may be read."""
    other_columns: tuple[str, ...] = ()
    """Columns with types of PostgreSQL whose values compare otherwise than those of SMILE."""
    xid: int = 0
    """The transaction that created it."""
    life_tick: int | None = None
    """Of the stream of a table: see `capture/table_lives.py`."""

    @property
    def begin_tick(self) -> int | None:
        """The tick after which events may be filtered with the table: from there on, the stream has its contents. None
        if they cannot, or not yet."""
        return None if self.is_dropped or self.life_tick in (None, END) else self.life_tick

    @property
    def stream(self) -> mmpl.StreamDef:
        return mmpl.StreamDef(self.name, TICK_COLUMN, self.columns, is_table=self.is_table)


@dataclass(frozen=True)
class DatabaseSubscription:
    """`xid` is the transaction that created it. `has_position`: it is known from which events on it receives them."""

    id: int
    name: str
    type_id: int
    filter: str | None
    priority: int
    xid: int
    has_position: bool
    is_global: bool = False


@dataclass(frozen=True)
class ViewTable:
    id: int
    table_name: str
    view: str
    with_knowledge: bool


@dataclass(frozen=True)
class DatabaseLink:
    """A link of the broker that was created in the database. `password` is the token of this broker there."""

    name: str
    address: str
    port: int
    password: str = field(repr=False)


@dataclass(frozen=True)
class Catalogue:
    """`advertised` are conditions of advertised types, by type; `dropped_links` are names that no link has any more."""

    types: Mapping[int, EventType] = field(default_factory=dict)
    subscriptions: tuple[DatabaseSubscription, ...] = ()
    view_tables: tuple[ViewTable, ...] = ()
    advertised: Mapping[int, str | None] = field(default_factory=dict)
    links: tuple[DatabaseLink, ...] = ()
    dropped_links: frozenset[str] = frozenset()


_TYPES = """
SELECT t.id, t.name, t.source_table IS NOT NULL, t.dropped_xid IS NOT NULL,
    (SELECT r.relname FROM pg_class AS r WHERE r.oid = t.source_table AND NOT r.relrowsecurity
        AND NOT EXISTS (SELECT FROM pg_class AS o WHERE o.relname = r.relname AND o.oid <> r.oid)),
    coalesce((SELECT json_agg(json_build_array(c.name, c.smile_type, c.postgres_type) ORDER BY c.position)
        FROM smile.event_column AS c WHERE c.type_id = t.id), '[]'),
    t.created_xid::text::bigint, t.life_tick
FROM smile.event_type AS t ORDER BY t.id
"""
_SAME_TYPES = re.compile(
    r"boolean|smallint|integer|bigint|double precision|numeric(\(.*\))?|text|character varying(\(.*\))?|name|date|bytea"
    r"|timestamp(\(.\))? without time zone"
)
"""Types of PostgreSQL whose values compare as those of SMILE."""
_SUBSCRIPTIONS = """
SELECT s.id, s.name, s.type_id, s.filter, s.priority, s.created_xid::text::bigint,
    EXISTS (SELECT FROM smile.delivery_position AS p WHERE p.subscription_id = s.id), s.scope = 'global'
FROM smile.subscription AS s WHERE s.dropped_xid IS NULL ORDER BY s.id
"""
_VIEW_TABLES = """
SELECT v.id, v.table_name, v.view, v.with_knowledge FROM smile.view_table AS v WHERE v.dropped_xid IS NULL ORDER BY v.id
"""
_ADVERTISEMENTS = "SELECT a.type_id, a.condition FROM smile.advertisement AS a WHERE a.dropped_xid IS NULL"
_LINKS = """
SELECT l.name, l.address, l.port, l.password FROM smile.link AS l WHERE l.dropped_xid IS NULL ORDER BY l.id
"""
_DROPPED_LINKS = """
SELECT DISTINCT d.name FROM smile.link AS d WHERE d.dropped_xid IS NOT NULL
    AND NOT EXISTS (SELECT FROM smile.link AS l WHERE lower(l.name) = lower(d.name) AND l.dropped_xid IS NULL)
"""


def read_catalogue(connection: Connection) -> Catalogue:
    """All of it as of one moment."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        types = [
            EventType(
                id_,
                name,
                tuple((column, parse_type(text)) for column, text, _ in columns),
                is_table,
                is_dropped,
                table_name,
                tuple(column for column, _, postgres_type in columns if not _SAME_TYPES.fullmatch(postgres_type)),
                *life,
            )
            for id_, name, is_table, is_dropped, table_name, columns, *life in connection.execute(_TYPES)
        ]
        subscriptions = [DatabaseSubscription(*row) for row in connection.execute(_SUBSCRIPTIONS)]
        view_tables = [ViewTable(*row) for row in connection.execute(_VIEW_TABLES)]
        advertised: dict[int, str | None] = dict(connection.execute(_ADVERTISEMENTS).fetchall())
        links = [DatabaseLink(*row) for row in connection.execute(_LINKS)]
        dropped_links = frozenset(name for (name,) in connection.execute(_DROPPED_LINKS))
    return Catalogue(
        {t.id: t for t in types}, tuple(subscriptions), tuple(view_tables), advertised, tuple(links), dropped_links
    )


def parse_type(text: str) -> DataType:
    """The type that the catalogue calls so."""
    match = re.fullmatch(r"decimal\((\d+), (\d+)\)", text)
    return decimal_type(int(match[1]), int(match[2])) if match else SIMPLE_TYPES[text]
