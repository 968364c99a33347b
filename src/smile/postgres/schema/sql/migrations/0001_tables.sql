-- The tables of the schema. Nobody but their owner may read or write them: functions and views do.
--
-- A change of the catalogue is in force for the events of transactions that are ordered after its own. So each row has
-- the transaction that created it, and the one that dropped it, with their places in the order of all events
-- (`created_seq`, `dropped_seq`). Dropped rows are removed when the capture has passed them.

CREATE TABLE smile.setting (
    name text PRIMARY KEY,
    value text NOT NULL
);

CREATE SEQUENCE smile.queue_seq;

CREATE TABLE smile.event_type (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    owner name NOT NULL,
    source_table oid,  -- of a stream of changes: its table
    in_auditable boolean NOT NULL DEFAULT false,
    out_auditable boolean NOT NULL DEFAULT false,
    exception_auditable boolean NOT NULL DEFAULT false,
    created_xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    created_seq bigint NOT NULL DEFAULT nextval('smile.queue_seq'),
    dropped_xid xid8,
    dropped_seq bigint
);
CREATE UNIQUE INDEX event_type_name ON smile.event_type (lower(name)) WHERE dropped_xid IS NULL;

CREATE TABLE smile.event_column (
    type_id integer NOT NULL REFERENCES smile.event_type ON DELETE CASCADE,
    position integer NOT NULL,
    name name NOT NULL,
    postgres_type text NOT NULL,
    smile_type text NOT NULL,
    is_not_null boolean NOT NULL,
    PRIMARY KEY (type_id, position)
);

CREATE TABLE smile.advertisement (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type_id integer NOT NULL REFERENCES smile.event_type ON DELETE CASCADE,
    owner name NOT NULL,
    condition text,
    created_xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    created_seq bigint NOT NULL DEFAULT nextval('smile.queue_seq'),
    dropped_xid xid8,
    dropped_seq bigint
);
CREATE UNIQUE INDEX advertisement_type ON smile.advertisement (type_id) WHERE dropped_xid IS NULL;

CREATE TABLE smile.subscription (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    type_id integer NOT NULL REFERENCES smile.event_type ON DELETE CASCADE,
    owner name NOT NULL,
    scope text NOT NULL CHECK (scope IN ('local', 'global')),
    filter text,
    filter_evaluation text NOT NULL DEFAULT 'database' CHECK (filter_evaluation IN ('broker', 'database')),
    function text NOT NULL,
    arguments text NOT NULL,
    call_arguments text NOT NULL,  -- `event` as what the function takes
    search_path text NOT NULL,
    priority integer NOT NULL,
    created_xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    created_seq bigint NOT NULL DEFAULT nextval('smile.queue_seq'),
    dropped_xid xid8,
    dropped_seq bigint
);
CREATE UNIQUE INDEX subscription_name ON smile.subscription (lower(name)) WHERE dropped_xid IS NULL;
CREATE INDEX subscription_type ON smile.subscription (type_id);

CREATE TABLE smile.rule (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    type_id integer NOT NULL REFERENCES smile.event_type ON DELETE CASCADE,
    owner name NOT NULL,
    operation text NOT NULL CHECK (operation IN ('insert', 'update', 'delete')),
    source_table oid NOT NULL,
    condition text,
    arguments text NOT NULL,
    search_path text NOT NULL,
    visibility text NOT NULL,
    reliability text NOT NULL
);
CREATE UNIQUE INDEX rule_name ON smile.rule (source_table, lower(name));

CREATE TABLE smile.link (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    owner name NOT NULL,
    address text NOT NULL,
    port integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
    username text NOT NULL,
    password text NOT NULL,
    created_xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    created_seq bigint NOT NULL DEFAULT nextval('smile.queue_seq'),
    dropped_xid xid8,
    dropped_seq bigint
);
CREATE UNIQUE INDEX link_name ON smile.link (lower(name)) WHERE dropped_xid IS NULL;

CREATE TABLE smile.view_table (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_name text NOT NULL,
    view text NOT NULL,
    with_knowledge boolean NOT NULL,
    owner name NOT NULL,
    created_xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    created_seq bigint NOT NULL DEFAULT nextval('smile.queue_seq'),
    dropped_xid xid8,
    dropped_seq bigint
);
CREATE UNIQUE INDEX view_table_name ON smile.view_table (table_name) WHERE dropped_xid IS NULL;

-- Published events. Those of one transaction have one xid; rows are ordered by (xid, seq).
CREATE TABLE smile.in_queue (
    seq bigint NOT NULL DEFAULT nextval('smile.queue_seq'),
    xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    type_id integer NOT NULL,
    event json NOT NULL,
    enqueue_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    publisher name NOT NULL,
    PRIMARY KEY (xid, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- NON-GUARANTEED events. A row that is taken is kept only if its queue is auditable.
CREATE UNLOGGED TABLE smile.in_queue_unlogged (
    seq bigint NOT NULL DEFAULT nextval('smile.queue_seq'),
    xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    type_id integer NOT NULL,
    event json NOT NULL,
    enqueue_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    publisher name NOT NULL,
    is_taken boolean NOT NULL DEFAULT false
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
CREATE UNIQUE INDEX in_queue_unlogged_order ON smile.in_queue_unlogged (xid, seq) WHERE NOT is_taken;

-- A batch is finished if `events` is known. The last two are kept.
CREATE TABLE smile.capture_batch (
    batch bigint PRIMARY KEY,
    snapshot_from pg_snapshot NOT NULL,
    snapshot_to pg_snapshot NOT NULL,
    first_number bigint NOT NULL,
    events bigint,
    begin_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    finish_time timestamptz
);

-- The deliveries that a session is about to make: what has matched, and is not delivered yet. Each is the number of an event,
-- from 1, and a subscription.
CREATE TABLE smile.out_batch (
    pid integer PRIMARY KEY,
    events json NOT NULL,
    event_numbers integer[] NOT NULL,
    subscriptions integer[] NOT NULL,
    enqueue_time timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Deliveries of auditable queues.
CREATE TABLE smile.delivered (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id integer NOT NULL,
    subscription text NOT NULL,
    type_id integer NOT NULL,
    origin text NOT NULL,
    tick bigint NOT NULL,
    sequence bigint,
    event json NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    enqueue_time timestamptz NOT NULL,
    delivery_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts integer NOT NULL
);
CREATE INDEX delivered_type ON smile.delivered (type_id);

-- The last tick of each origin that took effect, or went to the exception queue.
CREATE TABLE smile.delivery_position (
    subscription_id integer NOT NULL REFERENCES smile.subscription ON DELETE CASCADE,
    origin text NOT NULL,
    tick bigint NOT NULL,
    PRIMARY KEY (subscription_id, origin)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

CREATE TABLE smile.exception_queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id integer NOT NULL,
    subscription text NOT NULL,
    type_id integer NOT NULL,
    origin text NOT NULL,
    tick bigint NOT NULL,
    sequence bigint,
    event json NOT NULL,
    sqlstate text NOT NULL,
    message text NOT NULL,
    detail text NOT NULL,
    context text NOT NULL,
    attempts integer NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    enqueue_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_attempt_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    resolution text CHECK (resolution IN ('delivered', 'dropped'))
);
CREATE INDEX exception_queue_subscription ON smile.exception_queue (subscription_id);
