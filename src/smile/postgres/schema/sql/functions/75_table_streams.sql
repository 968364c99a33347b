-- Table streams: the changes of a table as events. An event has `change` ('insert' or 'delete') and the columns of the row; an
-- update is a delete and an insert. The first events are the rows of the table.

CREATE OR REPLACE FUNCTION smile.create_table_stream(name text, table_name text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    source_table pg_catalog.regclass := smile.find_table(table_name);
    source text := smile.qualified_name(source_table);
    trigger_function text;
BEGIN
    PERFORM smile.check_stream_table(source_table);
    -- No other session writes from here to the commit, and statements after the lock see everything that is committed.
    EXECUTE pg_catalog.format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', source);
    IF NOT pg_catalog.has_table_privilege(smile.installer(), source_table, 'SELECT') THEN
        EXECUTE pg_catalog.format('GRANT SELECT ON %s TO %I', source, smile.installer());
    END IF;
    INSERT INTO smile.command AS c (name, arguments)
    VALUES ('create_table_stream', pg_catalog.jsonb_build_object('name', name,
        'source_table', source_table::pg_catalog.oid::bigint))
    RETURNING c.result ->> 'function' INTO trigger_function;
    EXECUTE pg_catalog.format('CREATE TRIGGER %I AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW '
        'EXECUTE FUNCTION smile.%I()', trigger_function, source, trigger_function);
    EXECUTE pg_catalog.format('CREATE TRIGGER %I BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION smile.%I()',
        trigger_function OPERATOR(pg_catalog.||) '_truncate', source, trigger_function);
    -- Also for changes that arrive by replication.
    EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I, ENABLE ALWAYS TRIGGER %I', source, trigger_function,
        trigger_function OPERATOR(pg_catalog.||) '_truncate');
END $$;

CREATE OR REPLACE FUNCTION smile.qualified_name(relation oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = relation
$$;

CREATE OR REPLACE FUNCTION smile.check_stream_table(source_table oid) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    c pg_class;
    reason text;
BEGIN
    SELECT t.* INTO c FROM pg_class AS t WHERE t.oid = source_table;
    reason := CASE
        WHEN c.relkind <> 'r' THEN 'it is not a plain table'
        WHEN c.relpersistence <> 'p' THEN 'it is temporary or unlogged'
        WHEN c.relnamespace = 'smile'::regnamespace OR c.relnamespace = 'pg_catalog'::regnamespace THEN 'it is a table of the system'
        WHEN c.relrowsecurity AND NOT EXISTS (
            SELECT FROM pg_roles AS r WHERE r.rolname = smile.installer() AND (r.rolsuper OR r.rolbypassrls))
            THEN format('it has row security, which %s cannot bypass', smile.installer())
        WHEN EXISTS (SELECT FROM pg_attribute AS a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND lower(a.attname) = 'change')
            THEN 'it has a column named change'
        WHEN EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attgenerated = 'v')
            THEN 'it has a virtual generated column'
    END;
    IF reason IS NOT NULL THEN
        PERFORM smile.fail('E156', format('%s cannot be a stream: %s', c.relname, reason));
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM smile.fail('E156', 'a stream of a table cannot be created in a transaction that does not see new rows',
            'Use a transaction with READ COMMITTED.');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION smile.command_create_table_stream(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    source oid := (request ->> 'source_table')::bigint::oid;
    new_id integer;
BEGIN
    PERFORM smile.check_may_create(caller, 'streams');
    PERFORM smile.check_stream_table(source);
    PERFORM smile.check_owner(caller, pg_get_userbyid(c.relowner), format('the table %s', c.relname))
    FROM pg_class AS c WHERE c.oid = source;
    PERFORM smile.remove_orphan(caller, request ->> 'name');
    new_id := smile.add_event_type(request ->> 'name', caller, jsonb_build_array(jsonb_build_object(
        'name', 'change', 'type', 'text'::regtype::oid::bigint, 'typmod', -1, 'not_null', true))
        || smile.table_columns(source, false), source);
    INSERT INTO smile.advertisement (type_id, owner) VALUES (new_id, caller);
    PERFORM smile.command_grant(caller, jsonb_build_object(
        'privilege', 'subscribe', 'event_type', request ->> 'name', 'role', caller));
    PERFORM smile.define_capture(new_id);
    PERFORM smile.check_rows(new_id);
    EXECUTE smile.insert_events(new_id, 'insert', 'r', format('FROM ONLY %s AS r', smile.qualified_name(source)), quote_literal(caller));
    RETURN jsonb_build_object('function', 'capture_table_' || new_id);
END $$;

-- A table that was dropped leaves its stream behind. Another one takes its name.
CREATE OR REPLACE FUNCTION smile.remove_orphan(caller name, name text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM smile.command_drop_table_stream(caller, jsonb_build_object('name', t.name))
    FROM smile.event_type AS t
    WHERE lower(t.name) = lower(remove_orphan.name) AND t.dropped_xid IS NULL AND t.source_table IS NOT NULL
        AND smile.acts_as(caller, t.owner) AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = t.source_table);
END $$;

-- Refuses a table that has a value which events cannot have.
CREATE OR REPLACE FUNCTION smile.check_rows(id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    c smile.event_column;
    type smile.event_type;
    wrong text;
BEGIN
    SELECT t.* INTO type FROM smile.event_type AS t WHERE t.id = check_rows.id;
    FOR c IN SELECT e.* FROM smile.event_column AS e WHERE e.type_id = type.id AND e.position > 1 LOOP
        IF smile.wrong_value(format('r.%I', c.name), c) IS NOT NULL THEN
            EXECUTE format('SELECT left(r.%I::text, 50) FROM ONLY %s AS r WHERE %s LIMIT 1', c.name,
                smile.qualified_name(type.source_table), smile.wrong_value(format('r.%I', c.name), c)) INTO wrong;
            IF wrong IS NOT NULL THEN
                PERFORM smile.fail('E078', format('%s.%s: %s does not fit %s', type.name, c.name, wrong, c.smile_type));
            END IF;
        END IF;
    END LOOP;
END $$;

-- The statement that adds events of rows to the queue. The rows have the alias `r`; `rows` is a FROM clause, or empty.
CREATE OR REPLACE FUNCTION smile.insert_events(id integer, change text, r text, rows text, publisher text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('INSERT INTO smile.in_queue (type_id, event, publisher) SELECT %s, row_to_json(event), %s FROM (SELECT %L AS change, %s %s) AS event',
        id, publisher, change,
        string_agg(format('%s AS %I', smile.value_to_json(format('%s.%I', r, c.name), c), c.name), ', ' ORDER BY c.position), rows)
    FROM smile.event_column AS c WHERE c.type_id = id AND c.position > 1
$$;

-- Writes the trigger function of a stream. It checks its table, because everybody may use it in a trigger.
CREATE OR REPLACE FUNCTION smile.define_capture(id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    type smile.event_type;
    checks text;
BEGIN
    SELECT t.* INTO type FROM smile.event_type AS t WHERE t.id = define_capture.id;
    SELECT string_agg(smile.value_check(type.name, format('NEW.%I', c.name), c), '' ORDER BY c.position) INTO checks
    FROM smile.event_column AS c WHERE c.type_id = type.id AND c.position > 1;
    EXECUTE format($function$
        CREATE OR REPLACE FUNCTION smile.%I() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET extra_float_digits = 1 AS %L
        $function$, 'capture_table_' || type.id, format($body$
            DECLARE
                queue_publisher name := smile.session_role();
            BEGIN
                IF TG_RELID <> %s THEN
                    PERFORM smile.fail('E090', 'this function is for another table');
                END IF;
                IF TG_OP = 'TRUNCATE' THEN
                    -- By its present name: another relation may have the one that it had.
                    EXECUTE replace(%L, '<table>', TG_RELID::regclass::text) USING queue_publisher;
                    PERFORM smile.wake();
                    RETURN NULL;
                END IF;
                IF TG_OP = 'UPDATE' AND OLD *= NEW THEN
                    RETURN NULL;
                END IF;
                IF TG_OP <> 'INSERT' THEN
                    %s;
                END IF;
                IF TG_OP <> 'DELETE' THEN
                    %s
                    %s;
                END IF;
                PERFORM smile.wake();
                RETURN NULL;
            END $body$, type.source_table,
            smile.insert_events(type.id, 'delete', 'r', 'FROM ONLY <table> AS r', '$1'),
            smile.insert_events(type.id, 'delete', 'OLD', '', 'queue_publisher'), checks,
            smile.insert_events(type.id, 'insert', 'NEW', '', 'queue_publisher')));
END $$;

CREATE OR REPLACE FUNCTION smile.drop_table_stream(name text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments) VALUES ('drop_table_stream', pg_catalog.jsonb_build_object('name', $1))
$$;

CREATE OR REPLACE FUNCTION smile.command_drop_table_stream(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    type smile.event_type := smile.find_type(request ->> 'name');
BEGIN
    IF type.source_table IS NULL THEN
        PERFORM smile.fail('E154', format('%s is not the stream of a table', type.name), format('Use DROP EVENT TYPE %s.', type.name));
    END IF;
    PERFORM smile.check_owner(caller, type.owner, format('the stream %s', type.name));
    PERFORM smile.remove_event_type(type);
    EXECUTE format('DROP FUNCTION smile.%I() CASCADE', 'capture_table_' || type.id);  -- with its triggers
    RETURN NULL;
END $$;
