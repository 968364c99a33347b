-- Capture: what has become visible between two snapshots is a batch. See decision 0060.

-- The snapshot up to which events are captured.
CREATE OR REPLACE FUNCTION smile.captured_snapshot() RETURNS pg_snapshot
LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT snapshot_to FROM smile.capture_batch WHERE events IS NOT NULL ORDER BY batch DESC LIMIT 1), '3:3:'::pg_snapshot)
$$;

-- Returns the batch that was begun and not finished, or begins one. The caller commits before it reads the batch.
CREATE OR REPLACE FUNCTION smile.begin_capture_batch(
    OUT batch bigint, OUT snapshot_from pg_snapshot, OUT snapshot_to pg_snapshot, OUT first_number bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    latest smile.capture_batch;
BEGIN
    LOCK TABLE smile.capture_batch IN SHARE ROW EXCLUSIVE MODE;
    IF current_setting('synchronous_commit') = 'off' THEN
        SET LOCAL synchronous_commit = on;  -- the commit flushes the transactions in the batch as well
    END IF;
    SELECT b.* INTO latest FROM smile.capture_batch AS b ORDER BY b.batch DESC LIMIT 1;
    IF latest.batch IS NULL OR latest.events IS NOT NULL THEN
        INSERT INTO smile.capture_batch AS b (batch, snapshot_from, snapshot_to, first_number)
        VALUES (coalesce(latest.batch + 1, 1), smile.captured_snapshot(), pg_current_snapshot(),
            coalesce(latest.first_number + latest.events, 1))
        RETURNING b.* INTO latest;
    END IF;
    begin_capture_batch.batch := latest.batch;
    begin_capture_batch.snapshot_from := latest.snapshot_from;
    begin_capture_batch.snapshot_to := latest.snapshot_to;
    begin_capture_batch.first_number := latest.first_number;
END $$;

-- Whether a transaction became visible after `snapshot_from`, up to `snapshot_to`.
CREATE OR REPLACE FUNCTION smile.is_between(xid xid8, snapshot_from pg_snapshot, snapshot_to pg_snapshot) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_visible_in_snapshot(xid, snapshot_to) AND NOT pg_visible_in_snapshot(xid, snapshot_from)
$$;

-- The events of a batch, numbered, in their order.
CREATE OR REPLACE FUNCTION smile.captured_events(batch bigint) RETURNS TABLE (
    number bigint, xid xid8, seq bigint, type_id integer, event json, enqueue_time timestamptz, publisher name)
LANGUAGE sql STABLE AS $$
    SELECT b.first_number + row_number() OVER (ORDER BY q.xid, q.seq) - 1, q.xid, q.seq, q.type_id, q.event, q.enqueue_time,
        q.publisher
    FROM smile.capture_batch AS b JOIN smile.in_queue AS q
        ON q.xid >= pg_snapshot_xmin(b.snapshot_from) AND q.xid < pg_snapshot_xmax(b.snapshot_to)
        AND smile.is_between(q.xid, b.snapshot_from, b.snapshot_to)
    WHERE b.batch = captured_events.batch
    ORDER BY q.xid, q.seq
$$;

-- Deletes the events of queues that are not auditable, and what was dropped from the catalogue.
CREATE OR REPLACE FUNCTION smile.finish_capture_batch(batch bigint, events bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    finished smile.capture_batch;
BEGIN
    UPDATE smile.capture_batch AS b
    SET events = finish_capture_batch.events, finish_time = clock_timestamp()
    WHERE b.batch = finish_capture_batch.batch AND b.events IS NULL
    RETURNING b.* INTO finished;
    IF finished.batch IS NULL THEN
        RETURN;  -- it was finished before
    END IF;
    DELETE FROM smile.capture_batch AS b WHERE b.batch < finished.batch - 1;
    DELETE FROM smile.in_queue AS q
    WHERE q.xid >= pg_snapshot_xmin(finished.snapshot_from) AND q.xid < pg_snapshot_xmax(finished.snapshot_to)
        AND smile.is_between(q.xid, finished.snapshot_from, finished.snapshot_to)
        AND NOT EXISTS (SELECT FROM smile.event_type AS t WHERE t.id = q.type_id AND t.in_auditable);
    PERFORM smile.delete_dropped(finished.snapshot_to);
END $$;

CREATE OR REPLACE FUNCTION smile.delete_dropped(snapshot pg_snapshot) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM smile.advertisement WHERE pg_visible_in_snapshot(dropped_xid, snapshot);
    DELETE FROM smile.subscription WHERE pg_visible_in_snapshot(dropped_xid, snapshot);
    DELETE FROM smile.link WHERE pg_visible_in_snapshot(dropped_xid, snapshot);
    DELETE FROM smile.view_table WHERE pg_visible_in_snapshot(dropped_xid, snapshot);
    WITH dropped AS (DELETE FROM smile.event_type WHERE pg_visible_in_snapshot(dropped_xid, snapshot) RETURNING id),
        q AS (DELETE FROM smile.in_queue WHERE type_id IN (SELECT id FROM dropped)),
        u AS (DELETE FROM smile.in_queue_unlogged WHERE type_id IN (SELECT id FROM dropped)),
        d AS (DELETE FROM smile.delivered WHERE type_id IN (SELECT id FROM dropped))
    DELETE FROM smile.exception_queue WHERE type_id IN (SELECT id FROM dropped);
END $$;

-- Takes NON-GUARANTEED events out of their queue, in their order. The caller commits before it publishes them.
CREATE OR REPLACE FUNCTION smile.take_unlogged_events(count_max bigint) RETURNS TABLE (
    xid xid8, seq bigint, type_id integer, event json, enqueue_time timestamptz, publisher name)
LANGUAGE sql AS $$
    WITH chosen AS MATERIALIZED (
        SELECT q.ctid, q.xid, q.seq, q.type_id, q.event, q.enqueue_time, q.publisher, t.in_auditable
        FROM smile.in_queue_unlogged AS q LEFT JOIN smile.event_type AS t ON t.id = q.type_id
        WHERE NOT q.is_taken ORDER BY q.xid FETCH FIRST (count_max) ROWS WITH TIES),  -- whole transactions
    kept AS (UPDATE smile.in_queue_unlogged SET is_taken = true
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM chosen WHERE in_auditable))),
    removed AS (DELETE FROM smile.in_queue_unlogged
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM chosen WHERE in_auditable IS NOT TRUE)))
    SELECT c.xid, c.seq, c.type_id, c.event, c.enqueue_time, c.publisher FROM chosen AS c ORDER BY c.xid, c.seq
$$;

-- Identifies the server; empty if the role may not know it. Transactions are numbered by the server: their numbers mean
-- something else in another one.
CREATE OR REPLACE FUNCTION smile.server_identifier() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() AS c);
EXCEPTION WHEN insufficient_privilege THEN
    RETURN '';
END $$;

-- Whether the queues have transactions of another server, or of a future of this one: the database was copied from a dump.
-- Then what is published could be taken for what was captured before.
CREATE OR REPLACE FUNCTION smile.is_copied() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT smile.server_identifier() <> coalesce(
            (SELECT s.value FROM smile.setting AS s WHERE s.name = 'server_identifier'), smile.server_identifier())
        OR pg_snapshot_xmax(pg_current_snapshot()) < greatest(
            (SELECT max(pg_snapshot_xmax(b.snapshot_to)) FROM smile.capture_batch AS b),
            (SELECT max(q.xid) FROM smile.in_queue AS q))
$$;

-- After the database was copied from a dump: captures what waits, and what is published from now on. Each transaction that
-- waits gets the number of a subtransaction, which is this server's, in the order of their events. Those of a batch that
-- was begun come first, in its order: the log may have some of them. What was captured gets 1, which no transaction has.
CREATE OR REPLACE FUNCTION smile.restart_capture() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    latest smile.capture_batch;
    captured pg_snapshot := smile.captured_snapshot();
    captured_time timestamptz := (
        SELECT b.begin_time FROM smile.capture_batch AS b WHERE b.events IS NOT NULL ORDER BY b.batch DESC LIMIT 1);
    old_xids xid8[];
    new_xids xid8[] := ARRAY[]::xid8[];
    catalogue_table text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1936550252, 3) THEN
        PERFORM smile.fail('E162', 'a service captures this database', 'Stop it first.');
    END IF;
    LOCK TABLE smile.in_queue, smile.in_queue_unlogged, smile.capture_batch, smile.event_type, smile.advertisement,
        smile.subscription, smile.link, smile.view_table IN SHARE ROW EXCLUSIVE MODE;
    SELECT b.* INTO latest FROM smile.capture_batch AS b ORDER BY b.batch DESC LIMIT 1;
    UPDATE smile.in_queue AS q SET xid = '1'
    WHERE pg_visible_in_snapshot(q.xid, captured) AND q.enqueue_time < captured_time
        AND EXISTS (SELECT FROM smile.event_type AS t WHERE t.id = q.type_id AND t.in_auditable);
    SELECT array_agg(g.xid ORDER BY g.begun_xid, g.seq) INTO old_xids
    FROM (
        SELECT w.xid, min(w.seq) AS seq, min(w.xid) FILTER (WHERE w.is_begun) AS begun_xid
        FROM (
            SELECT q.xid, q.seq, latest.events IS NULL AND q.enqueue_time < latest.begin_time
                AND smile.is_between(q.xid, latest.snapshot_from, latest.snapshot_to) AS is_begun
            FROM smile.in_queue AS q WHERE q.xid <> '1'
            UNION ALL SELECT u.xid, u.seq, false FROM smile.in_queue_unlogged AS u WHERE NOT u.is_taken
            UNION ALL SELECT c.xid, c.seq, false FROM smile.catalogue_change AS c) AS w
        GROUP BY w.xid) AS g;
    FOR i IN 1 .. coalesce(cardinality(old_xids), 0) LOOP
        new_xids := new_xids || smile.subtransaction_number();
    END LOOP;
    UPDATE smile.in_queue AS q SET xid = n.new FROM unnest(old_xids, new_xids) AS n(old, new)
    WHERE q.xid = n.old AND q.xid <> '1';
    UPDATE smile.in_queue_unlogged AS u SET xid = n.new FROM unnest(old_xids, new_xids) AS n(old, new)
    WHERE u.xid = n.old AND NOT u.is_taken;
    FOREACH catalogue_table IN ARRAY ARRAY['event_type', 'advertisement', 'subscription', 'link', 'view_table'] LOOP
        EXECUTE format($update$
            UPDATE smile.%I AS t SET created_xid = (SELECT n.new FROM unnest($1, $2) AS n(old, new) WHERE n.old = t.created_xid),
                dropped_xid = (SELECT n.new FROM unnest($1, $2) AS n(old, new) WHERE n.old = t.dropped_xid)
            $update$, catalogue_table) USING old_xids, new_xids;
    END LOOP;
    DELETE FROM smile.capture_batch;
    INSERT INTO smile.capture_batch (batch, snapshot_from, snapshot_to, first_number, events, finish_time)
    VALUES (coalesce(latest.batch, 0) + 1, '3:3:', '3:3:', coalesce(latest.first_number + coalesce(latest.events, 0), 1), 0,
        clock_timestamp());
    -- Places in the write-ahead log mean something else too.
    INSERT INTO smile.setting VALUES ('server_identifier', smile.server_identifier()), ('message_epoch', gen_random_uuid()::text)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
END $$;

-- The changes of the catalogue that are still known: the transactions that made them, with their places.
CREATE OR REPLACE VIEW smile.catalogue_change AS
    SELECT c.xid, c.seq FROM (
        SELECT created_xid, created_seq, dropped_xid, dropped_seq FROM smile.event_type
        UNION ALL SELECT created_xid, created_seq, dropped_xid, dropped_seq FROM smile.advertisement
        UNION ALL SELECT created_xid, created_seq, dropped_xid, dropped_seq FROM smile.subscription
        UNION ALL SELECT created_xid, created_seq, dropped_xid, dropped_seq FROM smile.link
        UNION ALL SELECT created_xid, created_seq, dropped_xid, dropped_seq FROM smile.view_table) AS t
        CROSS JOIN LATERAL (VALUES (created_xid, created_seq), (dropped_xid, dropped_seq)) AS c(xid, seq)
    WHERE c.xid IS NOT NULL;

-- The number of a new subtransaction, with the epoch of its transaction.
CREATE OR REPLACE FUNCTION smile.subtransaction_number() RETURNS xid8
LANGUAGE plpgsql AS $$
DECLARE
    transaction_number bigint := pg_current_xact_id()::text::bigint;
    number bigint;
BEGIN
    BEGIN
        INSERT INTO smile.command_probe AS p VALUES (0)
        ON CONFLICT (subscription_id) DO UPDATE SET subscription_id = 0
        RETURNING p.xmin::text::bigint INTO number;
    EXCEPTION WHEN SQLSTATE 'SM000' THEN  -- a block with a handler is a subtransaction
        NULL;
    END;
    number := (transaction_number & ~4294967295) | number;
    RETURN (CASE WHEN number < transaction_number THEN number + 4294967296 ELSE number END)::text::xid8;
END $$;
