-- IMMEDIATE: an event leaves the transaction through a second connection of the server to itself, or as a logical message.

-- The way that is used: 'dblink', 'logical' or NULL.
CREATE OR REPLACE FUNCTION smile.immediate_way() RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted text := (SELECT value FROM smile.setting WHERE name = 'immediate');
BEGIN
    RETURN CASE
        WHEN wanted IN ('auto', 'dblink') AND EXISTS (SELECT FROM smile.setting WHERE name = 'immediate_connection')
            AND EXISTS (SELECT FROM pg_extension WHERE extname = 'dblink') THEN 'dblink'
        WHEN wanted IN ('auto', 'logical') AND current_setting('wal_level') = 'logical'
            AND EXISTS (SELECT FROM pg_replication_slots
                WHERE slot_name = smile.slot_name() AND database = current_database()) THEN 'logical'
    END;
END $$;

-- The slot from which the service reads logical messages.
CREATE OR REPLACE FUNCTION smile.slot_name() RETURNS name
LANGUAGE sql STABLE AS $$ SELECT ('smile_' || oid)::name FROM pg_catalog.pg_database WHERE datname = current_database() $$;

CREATE OR REPLACE FUNCTION smile.send_at_once(id integer, event json, publisher name, reliability text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    way text := smile.immediate_way();
    is_guaranteed boolean := reliability = 'guaranteed';
    has_flush boolean := current_setting('server_version_num')::integer >= 170000;
BEGIN
    IF way IS NULL THEN
        PERFORM smile.fail('E153', 'this database has no way to publish IMMEDIATE',
            'Install the extension dblink, or set wal_level = logical, and use smile postgres install --immediate.');
    ELSIF way = 'dblink' THEN
        PERFORM smile.send_by_dblink(id, event, publisher, is_guaranteed);
    ELSIF is_guaranteed AND NOT has_flush THEN
        PERFORM smile.fail('E153', 'IMMEDIATE GUARANTEED needs PostgreSQL 17 where logical messages are used',
            'Use dblink, or NON-GUARANTEED.');
    ELSIF has_flush THEN
        EXECUTE 'SELECT pg_logical_emit_message(false, ''smile'', $1, $2)'
        USING smile.sign_message(id, event, publisher, reliability), is_guaranteed;
    ELSE
        PERFORM pg_logical_emit_message(false, 'smile', smile.sign_message(id, event, publisher, reliability));
    END IF;
END $$;

-- The connection is closed before the caller has control again: who knew its name could use its rights.
CREATE OR REPLACE FUNCTION smile.send_by_dblink(id integer, event json, publisher name, is_guaranteed boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    dblink_schema name := (
        SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'dblink');
    statement text := format('SET synchronous_commit = %s; INSERT INTO smile.%I (type_id, event, publisher) '
        'VALUES (%s, %L, %L); DO ''BEGIN PERFORM smile.wake(); END''',
        CASE WHEN is_guaranteed THEN 'on' ELSE 'off' END,
        CASE WHEN is_guaranteed THEN 'in_queue' ELSE 'in_queue_unlogged' END, id, event, publisher);
BEGIN
    EXECUTE format('SELECT %I.dblink_exec($1, $2)', dblink_schema)
    USING (SELECT value FROM smile.setting WHERE name = 'immediate_connection'), statement;
END $$;

-- Everybody may emit logical messages: so an event has a signature, with a key that only the installer can read.
CREATE OR REPLACE FUNCTION smile.sign_message(id integer, event json, publisher name, reliability text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    content text := json_build_object('type_id', id, 'event', event, 'time', clock_timestamp(), 'publisher', publisher,
        'reliability', reliability, 'id', gen_random_uuid());
BEGIN
    RETURN smile.message_signature(content) || content;
END $$;

CREATE OR REPLACE FUNCTION smile.message_signature(content text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(key || sha256(key || convert_to(content, 'UTF8'))), 'hex')
    FROM (SELECT decode(value, 'hex') AS key FROM smile.setting WHERE name = 'message_key') AS k
$$;

-- The content of a logical message of the service's slot; NULL if its signature is wrong.
CREATE OR REPLACE FUNCTION smile.message_content(message text) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF left(message, 64) = smile.message_signature(substr(message, 65)) THEN
        RETURN substr(message, 65);
    END IF;
    RETURN NULL;
END $$;
