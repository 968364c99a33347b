-- Event types: their columns, and the objects of each type. For a type Quotes these are the composite type quotes_event,
-- the functions publish_quotes and quotes_row, and the views quotes_in, quotes_out and quotes_exception.

-- The SMILE type of a PostgreSQL type; NULL if there is none.
CREATE OR REPLACE FUNCTION smile.smile_type(type oid, typmod integer) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN type = 'boolean'::regtype THEN 'bool'
        WHEN type IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) THEN 'int'
        WHEN type IN ('real'::regtype, 'double precision'::regtype) THEN 'float'
        WHEN type = 'numeric'::regtype AND typmod = -1 THEN 'decimal(38, 18)'
        WHEN type = 'numeric'::regtype AND smile.numeric_digits(typmod) <= 38
            AND smile.numeric_scale(typmod) BETWEEN 0 AND smile.numeric_digits(typmod)
            THEN format('decimal(%s, %s)', smile.numeric_digits(typmod), smile.numeric_scale(typmod))
        WHEN type IN ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'name'::regtype) THEN 'string'
        WHEN type = 'uuid'::regtype THEN 'string'
        WHEN type IN ('json'::regtype, 'jsonb'::regtype) THEN 'json'
        WHEN type IN ('timestamp'::regtype, 'timestamptz'::regtype) THEN 'timestamp'
        WHEN type = 'date'::regtype THEN 'date'
        WHEN type = 'interval'::regtype THEN 'interval'
        WHEN type = 'bytea'::regtype THEN 'bytes'
        WHEN EXISTS (SELECT FROM pg_catalog.pg_type WHERE oid = type AND typtype = 'e') THEN 'string'
    END
$$;

CREATE OR REPLACE FUNCTION smile.numeric_digits(typmod integer) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT ((typmod - 4) >> 16) & 65535 $$;

-- Since PostgreSQL 15 it may be negative, in 11 bits.
CREATE OR REPLACE FUNCTION smile.numeric_scale(typmod integer) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT (((typmod - 4) & 2047) # 1024) - 1024 $$;

CREATE OR REPLACE FUNCTION smile.create_event_type(name text, columns text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    parsed jsonb;
BEGIN
    -- The server parses the columns, with the rights and the search path of the caller.
    BEGIN
        EXECUTE pg_catalog.format('CREATE TEMPORARY TABLE smile_columns (%s)', columns);
    EXCEPTION WHEN syntax_error_or_access_rule_violation THEN
        PERFORM smile.fail('E150', pg_catalog.format('the columns of %s cannot be used: %s', name, SQLERRM),
            'Write them as for a table, for instance symbol text NOT NULL, price numeric(10, 2).');
    END;
    parsed := smile.table_columns('pg_temp.smile_columns'::pg_catalog.regclass, true);
    DROP TABLE pg_temp.smile_columns;
    INSERT INTO smile.command (name, arguments)
    VALUES ('create_event_type', pg_catalog.jsonb_build_object('name', name, 'columns', parsed));
END $$;

-- The columns of a table as JSON. `plain` refuses defaults and constraints other than NOT NULL.
CREATE OR REPLACE FUNCTION smile.table_columns(source_table regclass, plain boolean) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF plain AND (EXISTS (SELECT FROM pg_constraint WHERE conrelid = source_table AND contype <> 'n')
        OR EXISTS (SELECT FROM pg_attrdef WHERE adrelid = source_table)
        OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = source_table AND (attidentity <> '' OR attgenerated <> '')))
    THEN
        PERFORM smile.fail('E150', 'the columns of an event type have no defaults and no constraints but NOT NULL',
            'An advertisement may have a condition.');
    END IF;
    RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'name', attname, 'type', atttypid::bigint, 'typmod', atttypmod, 'not_null', attnotnull) ORDER BY attnum), '[]')
        FROM pg_attribute WHERE attrelid = source_table AND attnum > 0 AND NOT attisdropped);
END $$;

CREATE OR REPLACE FUNCTION smile.command_create_event_type(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    id integer;
    type_name text := request ->> 'name';
BEGIN
    PERFORM smile.check_may_create(caller, 'event types');
    id := smile.add_event_type(type_name, caller, request -> 'columns', NULL);
    PERFORM smile.define_publish(id);
    PERFORM smile.command_grant(caller, jsonb_build_object('privilege', p, 'event_type', type_name, 'role', caller))
    FROM unnest(ARRAY['publish', 'subscribe']) p;
    RETURN to_jsonb(id);
END $$;

-- Event types, table streams and view tables can be created by whoever may create schemas in the database.
CREATE OR REPLACE FUNCTION smile.check_may_create(caller name, what text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT has_database_privilege(caller, current_database(), 'CREATE') THEN
        PERFORM smile.fail('E090', format('%s may not create %s', caller, what),
            format('It needs CREATE on the database: GRANT CREATE ON DATABASE %I TO %I.', current_database(), caller));
    END IF;
END $$;

-- Adds a type with its columns, its composite type and its views.
CREATE OR REPLACE FUNCTION smile.add_event_type(type_name text, owner name, columns jsonb, source_table oid) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    new_id integer;
    wrong record;
BEGIN
    PERFORM smile.check_name(type_name, 'an event type');
    SELECT c.name, format_type(c.type::oid, c.typmod) AS type INTO wrong
    FROM jsonb_to_recordset(columns) AS c(name name, type bigint, typmod integer)
    WHERE smile.smile_type(c.type::oid, c.typmod) IS NULL;
    IF FOUND THEN
        PERFORM smile.fail('E150', format('%s.%s has the type %s, which events cannot have', type_name, wrong.name, wrong.type),
            'Types are boolean, integers, numeric up to 38 digits, floats, text, timestamp, date, interval, bytea, uuid, '
            'json and enumerations.');
    END IF;
    SELECT c.name INTO wrong FROM jsonb_to_recordset(columns) AS c(name name)
    WHERE lower(c.name) IN ('tick', 'event') OR lower(c.name) LIKE 'queue\_%';
    IF FOUND THEN
        PERFORM smile.fail('E150', format('%s cannot have a column %s', type_name, wrong.name),
            'tick, event, and names that begin with queue_ are reserved.');
    END IF;
    SELECT min(c.name::text) AS name INTO wrong FROM jsonb_to_recordset(columns) AS c(name name)
    GROUP BY lower(c.name) HAVING count(*) > 1;
    IF FOUND THEN
        PERFORM smile.fail('E150', format('%s has two columns %s', type_name, wrong.name), 'The case of a name does not matter.');
    END IF;
    IF jsonb_array_length(columns) NOT BETWEEN 1 AND 98 THEN
        PERFORM smile.fail('E150', format('%s has %s columns', type_name, jsonb_array_length(columns)),
            'An event type has 1 to 98 columns.');
    END IF;
    BEGIN
        INSERT INTO smile.event_type (name, owner, source_table) VALUES (type_name, owner, source_table)
        RETURNING id INTO new_id;
    EXCEPTION WHEN unique_violation THEN
        PERFORM smile.fail('E155', format('there is an event type %s already', type_name), 'Choose another name, or drop it.');
    END;
    INSERT INTO smile.event_column (type_id, position, name, postgres_type, smile_type, is_not_null)
    SELECT new_id, c.position, e ->> 'name',
        format_type((e ->> 'type')::bigint::oid, (e ->> 'typmod')::integer),
        smile.smile_type((e ->> 'type')::bigint::oid, (e ->> 'typmod')::integer), (e ->> 'not_null')::boolean
    FROM jsonb_array_elements(columns) WITH ORDINALITY AS c(e, position);
    PERFORM smile.define_type(new_id);
    RETURN new_id;
END $$;

-- Creates the composite type, the function from JSON and the views of a type.
CREATE OR REPLACE FUNCTION smile.define_type(id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    stem text := (SELECT lower(t.name) FROM smile.event_type t WHERE t.id = define_type.id);
BEGIN
    EXECUTE format('CREATE TYPE smile.%I AS (%s)', stem || '_event', (
        SELECT string_agg(format('%I %s', c.name, c.postgres_type), ', ' ORDER BY c.position)
        FROM smile.event_column c WHERE c.type_id = id));
    PERFORM smile.define_row_function(id);
    PERFORM smile.define_views(id);
END $$;

CREATE OR REPLACE FUNCTION smile.define_row_function(id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    stem text := (SELECT lower(t.name) FROM smile.event_type t WHERE t.id = define_row_function.id);
    body text := (
        SELECT format('SELECT ROW(%s)::smile.%I',
            string_agg(smile.value_from_json(c.name, c.postgres_type, c.smile_type), ', ' ORDER BY c.position), stem || '_event')
        FROM smile.event_column c WHERE c.type_id = id);
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION smile.%I(json) RETURNS smile.%I LANGUAGE sql STABLE AS %L',
        stem || '_row', stem || '_event', body);
    EXECUTE format('GRANT EXECUTE ON FUNCTION smile.%I(json) TO PUBLIC', stem || '_row');
END $$;

-- The expression of a column's value in the JSON of an event, which is $1.
CREATE OR REPLACE FUNCTION smile.value_from_json(name name, postgres_type text, smile_type text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN smile_type = 'timestamp' AND postgres_type LIKE '%with time zone'
            THEN format('(smile.timestamp_from_text($1 ->> %L) AT TIME ZONE ''UTC'')::%s', name, postgres_type)
        WHEN smile_type IN ('timestamp', 'date', 'interval', 'bytes')
            THEN format('smile.%s_from_text($1 ->> %L)::%s', smile_type, name, postgres_type)
        WHEN smile_type = 'json'
            THEN format('CASE WHEN $1 ->> %L IS NOT NULL THEN ($1 -> %L)::%s END', name, name, postgres_type)
        ELSE format('($1 ->> %L)::%s', name, postgres_type)
    END
$$;

-- Values in JSON: timestamps are text or microseconds since 1970, dates text or days, intervals ticks of 1/1024 microsecond.
CREATE OR REPLACE FUNCTION smile.timestamp_from_text(value text) RETURNS timestamp
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN value ~ '^-?[0-9]+$'
        THEN timestamp '1970-01-01' + smile.microseconds(value::bigint) ELSE value::timestamp END
$$;

CREATE OR REPLACE FUNCTION smile.date_from_text(value text) RETURNS date
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN value ~ '^-?[0-9]+$' THEN date '1970-01-01' + value::integer ELSE value::date END
$$;

CREATE OR REPLACE FUNCTION smile.interval_from_text(value text) RETURNS interval
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN value ~ '^-?[0-9]+$' THEN smile.microseconds(value::bigint / 1024) ELSE value::interval END
$$;

CREATE OR REPLACE FUNCTION smile.bytes_from_text(value text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$ SELECT decode(substr(value, 3), 'hex') $$;

-- Exact: each factor is an integer below 2^53.
CREATE OR REPLACE FUNCTION smile.microseconds(count bigint) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$
    SELECT (count / 1000000) * interval '1 second' + (count % 1000000) * interval '1 microsecond'
$$;

CREATE OR REPLACE FUNCTION smile.define_views(id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    stem text := (SELECT lower(t.name) FROM smile.event_type t WHERE t.id = define_views.id);
    columns text := (
        SELECT string_agg(format('e.%I', c.name), ', ' ORDER BY c.position)
        FROM smile.event_column c WHERE c.type_id = id);
    row_function text := format('smile.%I', stem || '_row');
BEGIN
    EXECUTE format($view$
        CREATE OR REPLACE VIEW smile.%I AS
        SELECT %s, q.seq AS queue_seq, q.xid AS queue_xid, q.enqueue_time AS queue_time, q.publisher AS queue_publisher,
            q.reliability AS queue_reliability
        FROM (SELECT seq, xid, type_id, event, enqueue_time, publisher, 'guaranteed' AS reliability FROM smile.in_queue
            UNION ALL
            SELECT seq, xid, type_id, event, enqueue_time, publisher, 'non-guaranteed' FROM smile.in_queue_unlogged) AS q
            CROSS JOIN LATERAL %s(q.event) AS e
        WHERE q.type_id = %s$view$, stem || '_in', columns, row_function, id);
    EXECUTE format($view$
        CREATE OR REPLACE VIEW smile.%I AS
        SELECT %s, q.subscription AS queue_subscription, q.origin AS queue_origin, q.tick AS queue_tick,
            q.sequence AS queue_sequence, q.xid AS queue_xid, q.enqueue_time AS queue_time,
            q.delivery_time AS queue_delivery_time, q.attempts AS queue_attempts
        FROM (SELECT * FROM smile.pending_delivery UNION ALL SELECT * FROM smile.made_delivery) AS q
            CROSS JOIN LATERAL %s(q.event) AS e
        WHERE q.type_id = %s$view$, stem || '_out', columns, row_function, id);
    EXECUTE format($view$
        CREATE OR REPLACE VIEW smile.%I AS
        SELECT %s, q.id AS queue_id, q.subscription AS queue_subscription, q.origin AS queue_origin, q.tick AS queue_tick,
            q.sequence AS queue_sequence, q.xid AS queue_xid, q.enqueue_time AS queue_time,
            q.last_attempt_time AS queue_last_attempt_time, q.attempts AS queue_attempts, q.sqlstate AS queue_sqlstate,
            q.message AS queue_message, q.detail AS queue_detail, q.context AS queue_context,
            q.resolution AS queue_resolution
        FROM smile.exception_queue AS q CROSS JOIN LATERAL %s(q.event) AS e
        WHERE q.type_id = %s$view$, stem || '_exception', columns, row_function, id);
END $$;

CREATE OR REPLACE FUNCTION smile.drop_event_type(name text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments) VALUES ('drop_event_type', pg_catalog.jsonb_build_object('name', $1))
$$;

CREATE OR REPLACE FUNCTION smile.command_drop_event_type(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    type smile.event_type := smile.find_type(request ->> 'name');
BEGIN
    PERFORM smile.check_owner(caller, type.owner, format('the event type %s', type.name));
    IF type.source_table IS NOT NULL THEN
        PERFORM smile.fail('E155', format('%s is the stream of a table', type.name), format('Use DROP STREAM %s.', type.name));
    END IF;
    PERFORM smile.remove_event_type(type);
    RETURN NULL;
END $$;

-- Removes what a type has in the schema. Its row stays until the capture has passed it.
CREATE OR REPLACE FUNCTION smile.remove_event_type(type smile.event_type) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    stem text := lower(type.name);
    users text := (
        SELECT string_agg(u, ', ') FROM (
            SELECT 'the subscription ' || s.name FROM smile.subscription s WHERE s.type_id = type.id AND s.dropped_xid IS NULL
            UNION ALL
            SELECT 'the rule ' || r.name FROM smile.rule r JOIN pg_catalog.pg_class c ON c.oid = r.source_table
            WHERE r.type_id = type.id) AS users(u));
BEGIN
    IF users IS NOT NULL THEN
        PERFORM smile.fail('E155', format('%s is used by %s', type.name, users), 'Drop them first.');
    END IF;
    UPDATE smile.advertisement SET dropped_xid = pg_current_xact_id(), dropped_seq = nextval('smile.queue_seq')
    WHERE type_id = type.id AND dropped_xid IS NULL;
    UPDATE smile.event_type SET dropped_xid = pg_current_xact_id(), dropped_seq = nextval('smile.queue_seq')
    WHERE id = type.id;
    BEGIN
        EXECUTE format('DROP VIEW smile.%I, smile.%I, smile.%I', stem || '_in', stem || '_out', stem || '_exception');
        EXECUTE format('DROP FUNCTION IF EXISTS smile.%I', 'publish_' || stem);
        EXECUTE format('DROP FUNCTION smile.%I(json)', stem || '_row');
        EXECUTE format('DROP TYPE smile.%I', stem || '_event');
    EXCEPTION WHEN dependent_objects_still_exist THEN
        GET STACKED DIAGNOSTICS users = PG_EXCEPTION_DETAIL;
        PERFORM smile.fail('E155', format('%s is used: %s', type.name, users), 'Drop what uses it first.');
    END;
END $$;

CREATE OR REPLACE FUNCTION smile.alter_queue(queue text, auditable boolean) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments)
    VALUES ('alter_queue', pg_catalog.jsonb_build_object('queue', queue, 'auditable', auditable))
$$;

CREATE OR REPLACE FUNCTION smile.command_alter_queue(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    parts text[] := regexp_match(request ->> 'queue', '^(?:smile\.)?(.+)_(in|out|exception)$', 'i');
    type smile.event_type;
    is_auditable boolean := (request ->> 'auditable')::boolean;
BEGIN
    IF parts IS NULL THEN
        PERFORM smile.fail('E154', format('there is no queue %s', request ->> 'queue'),
            'A type NAME has the queues NAME_in, NAME_out and NAME_exception.');
    END IF;
    type := smile.find_type(parts[1]);
    PERFORM smile.check_owner(caller, type.owner, format('the event type %s', type.name));
    EXECUTE format('UPDATE smile.event_type SET %I = $1 WHERE id = $2', lower(parts[2]) || '_auditable')
    USING is_auditable, type.id;
    IF NOT is_auditable THEN
        PERFORM smile.delete_kept_events(type.id, lower(parts[2]));
    END IF;
    RETURN NULL;
END $$;

-- Deletes the events of a queue that are kept for audits only.
CREATE OR REPLACE FUNCTION smile.delete_kept_events(changed_type integer, queue text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    CASE queue
        WHEN 'in' THEN
            DELETE FROM smile.in_queue q WHERE q.type_id = changed_type AND pg_visible_in_snapshot(q.xid, smile.captured_snapshot());
            DELETE FROM smile.in_queue_unlogged q WHERE q.type_id = changed_type AND q.is_taken;
        WHEN 'out' THEN
            DELETE FROM smile.delivered d WHERE d.type_id = changed_type;
        WHEN 'exception' THEN
            DELETE FROM smile.exception_queue x WHERE x.type_id = changed_type AND x.resolution IS NOT NULL;
    END CASE;
END $$;
