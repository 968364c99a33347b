-- Subscriptions. Each has a function call_ID, which evaluates its filter and calls its function.

CREATE OR REPLACE FUNCTION smile.create_subscription(
    name text, event_type text, scope text DEFAULT 'local', filter text DEFAULT NULL, function text DEFAULT NULL,
    arguments text DEFAULT NULL, priority integer DEFAULT 0) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    -- The caller's search path: this function has none of its own.
    path text := pg_catalog.current_setting('search_path');
    call_arguments text;
BEGIN
    PERFORM smile.check_subscribe(event_type);
    call_arguments := smile.check_call(event_type, filter, function, arguments);
    PERFORM smile.capture_filter_tables(event_type, filter);
    INSERT INTO smile.command (name, arguments)
    VALUES ('create_subscription', pg_catalog.jsonb_build_object('name', name, 'event_type', event_type, 'scope', scope,
        'filter', filter, 'function', function, 'arguments', coalesce(arguments, ''), 'call_arguments', call_arguments, 'priority', priority, 'search_path', path));
END $$;

-- Refuses a caller who may not read the events of a type.
CREATE OR REPLACE FUNCTION smile.check_subscribe(event_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    type_name text := (SELECT t.name FROM smile.event_types t WHERE lower(t.name) = lower(event_type));
BEGIN
    IF type_name IS NULL THEN
        PERFORM smile.fail('E154', format('there is no event type %s', coalesce(event_type, 'NULL')));
    END IF;
    PERFORM smile.check_subscribe_as(current_user, type_name);
END $$;

CREATE OR REPLACE FUNCTION smile.check_subscribe_as(caller name, type_name text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT has_table_privilege(caller, format('smile.%I', lower(type_name) || '_in'), 'SELECT') THEN
        PERFORM smile.fail('E090', format('%s may not subscribe to %s', caller, type_name),
            format('GRANT SUBSCRIBE ON EVENT TYPE %s TO %I.', type_name, caller));
    END IF;
END $$;

-- Plans the filter and the call with the rights and the search path of the caller. Returns the arguments; `event` may be the
-- event as its composite type, as json or as jsonb, whatever the function takes.
CREATE OR REPLACE FUNCTION smile.check_call(event_type text, filter text, function text, arguments text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    source text := pg_catalog.format('smile.%I(NULL::pg_catalog.json) AS event', pg_catalog.lower(event_type) || '_row');
    forms text[] := CASE WHEN pg_catalog.btrim(arguments) OPERATOR(pg_catalog.=) 'event'
        THEN ARRAY['event', '$1', '$1::pg_catalog.jsonb'] ELSE ARRAY[coalesce(arguments, '')] END;
    form text;
    plan text;
BEGIN
    IF function IS NULL THEN
        PERFORM smile.fail('E152', 'a subscription needs a function', 'Write EXECUTE function(arguments).');
    END IF;
    BEGIN
        PERFORM pg_catalog.parse_ident(function);
        IF filter IS NOT NULL THEN
            PERFORM smile.check_expression(filter);
            EXECUTE pg_catalog.format('EXPLAIN SELECT FROM %s WHERE %s', source, filter) INTO plan;
        END IF;
    EXCEPTION WHEN syntax_error_or_access_rule_violation OR invalid_parameter_value THEN
        PERFORM smile.fail_expression(SQLSTATE, 'the filter', SQLERRM);
    END;
    FOREACH form IN ARRAY forms LOOP
        BEGIN
            IF form NOT LIKE '$1%' THEN
                PERFORM smile.check_expression(form);
            END IF;
            EXECUTE pg_catalog.format('EXPLAIN SELECT %s(%s) FROM %s', function,
                pg_catalog.replace(form, '$1', 'NULL::pg_catalog.json'), source) INTO plan;
            RETURN form;
        EXCEPTION
            WHEN undefined_function THEN
                IF form OPERATOR(pg_catalog.=) forms[pg_catalog.cardinality(forms)] THEN
                    PERFORM smile.fail_expression(SQLSTATE, 'the function', SQLERRM);
                END IF;
            WHEN syntax_error_or_access_rule_violation THEN
                PERFORM smile.fail_expression(SQLSTATE, 'the function', SQLERRM);
        END;
    END LOOP;
END $$;

-- Makes a stream of each table that a filter reads, so that the filter sees the table as of the event. A table that cannot be
-- a stream, or that belongs to another role, stays as it is: then the filter is evaluated in the database.
CREATE OR REPLACE FUNCTION smile.capture_filter_tables(event_type text, filter text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    table_oid oid;
BEGIN
    FOREACH table_oid IN ARRAY smile.filter_tables(event_type, filter) LOOP
        CONTINUE WHEN EXISTS (SELECT FROM smile.event_types AS t WHERE t.source_table::oid OPERATOR(pg_catalog.=) table_oid);
        BEGIN
            PERFORM smile.create_table_stream(c.relname::text, smile.qualified_name(c.oid))
            FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) table_oid;
        EXCEPTION
            WHEN insufficient_privilege OR SQLSTATE 'SM078' OR SQLSTATE 'SM090' OR SQLSTATE 'SM150' OR SQLSTATE 'SM155'
                OR SQLSTATE 'SM156' THEN
                RAISE NOTICE USING MESSAGE = pg_catalog.format('the filter is evaluated when an event is delivered: %s', SQLERRM);
        END;
    END LOOP;
END $$;

-- The tables that a filter reads. A view that is never kept says what it depends on.
CREATE OR REPLACE FUNCTION smile.filter_tables(event_type text, filter text) RETURNS oid[]
LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN
    IF filter IS NULL THEN
        RETURN ARRAY[]::oid[];
    END IF;
    BEGIN
        EXECUTE pg_catalog.format('CREATE TEMPORARY VIEW smile_filter AS SELECT 1 AS one FROM smile.%I(NULL::pg_catalog.json) AS event WHERE %s',
            pg_catalog.lower(event_type) OPERATOR(pg_catalog.||) '_row', filter);
        SELECT pg_catalog.string_agg(DISTINCT c.oid::text, ',') INTO found
        FROM pg_catalog.pg_depend AS d
            JOIN pg_catalog.pg_rewrite AS r ON r.oid OPERATOR(pg_catalog.=) d.objid
            JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) d.refobjid
        WHERE r.ev_class OPERATOR(pg_catalog.=) 'pg_temp.smile_filter'::pg_catalog.regclass
            AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass
            AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
            AND c.relkind OPERATOR(pg_catalog.=) 'r'
            AND c.relnamespace OPERATOR(pg_catalog.<>) 'pg_catalog'::pg_catalog.regnamespace;
        RAISE EXCEPTION USING ERRCODE = 'SM000', MESSAGE = coalesce(found, '');
    EXCEPTION
        WHEN SQLSTATE 'SM000' THEN
            found := SQLERRM;
        WHEN insufficient_privilege THEN
            found := '';  -- the role may not create temporary relations
    END;
    RETURN pg_catalog.string_to_array(found, ',')::oid[];
END $$;

-- Raises the error of an expression that the server refused.
CREATE OR REPLACE FUNCTION smile.fail_expression(state text, what text, message text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM smile.fail(CASE
        WHEN state = '42703' THEN 'E022'
        WHEN state = '42P01' THEN 'E021'
        WHEN state = '42883' AND message LIKE 'operator%' THEN 'E030'
        WHEN state = '42883' THEN 'E026'
        WHEN state = '42804' THEN 'E031'
        WHEN state = '42601' THEN 'E010'
        WHEN state = '42501' THEN 'E090'
        ELSE 'E152' END, format('%s cannot be used: %s', what, message));
END $$;

CREATE OR REPLACE FUNCTION smile.command_create_subscription(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    type smile.event_type := smile.find_type(request ->> 'event_type');
    added smile.subscription;
BEGIN
    PERFORM smile.check_name(request ->> 'name', 'a subscription');
    PERFORM smile.check_subscribe_as(caller, type.name);
    IF lower(coalesce(request ->> 'scope', 'local')) NOT IN ('local', 'global') THEN
        PERFORM smile.fail('E093', format('%L is not a scope', request ->> 'scope'), 'It is local or global.');
    END IF;
    IF EXISTS (SELECT FROM smile.subscription s
        WHERE lower(s.name) = lower(request ->> 'name') AND s.dropped_xid IS NULL)
    THEN
        PERFORM smile.fail('E155', format('there is a subscription %s already', request ->> 'name'),
            'Choose another name, or drop it.');
    END IF;
    INSERT INTO smile.subscription (name, type_id, owner, scope, filter, function, arguments, call_arguments, search_path,
        priority)
    VALUES (request ->> 'name', type.id, caller, lower(coalesce(request ->> 'scope', 'local')), request ->> 'filter',
        request ->> 'function', request ->> 'arguments', request ->> 'call_arguments',
        request ->> 'search_path', coalesce((request ->> 'priority')::integer, 0))
    RETURNING * INTO added;
    PERFORM smile.define_call(added);
    RETURN to_jsonb(added.id);
END $$;

-- The function call_ID returns whether the filter matched. Deferred triggers run within it: at the COMMIT they would have the
-- rights of the installer, before PostgreSQL 18. Without an event, it only runs these. It belongs to the owner of the subscription and runs with its
-- rights: within it, SET ROLE is impossible. The owner can alter how it runs, but not its text, which begins with a check.
CREATE OR REPLACE FUNCTION smile.define_call(s smile.subscription) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    source text := format('smile.%I($1) AS event', (SELECT lower(t.name) FROM smile.event_type t WHERE t.id = s.type_id) || '_row');
    function_name text := format('smile.%I', 'call_' || s.id);
BEGIN
    EXECUTE format($function$
        CREATE OR REPLACE FUNCTION %s(json, boolean) RETURNS boolean
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = %s AS %L
        $function$, function_name, smile.quoted_path(s.search_path), format($body$
            BEGIN
                IF current_user OPERATOR(pg_catalog.<>) %L::pg_catalog.name THEN
                    PERFORM smile.fail('E090'::pg_catalog.text, %L::pg_catalog.text);
                END IF;
                IF $1 IS NULL THEN
                    SET CONSTRAINTS ALL IMMEDIATE;
                    RETURN true;
                END IF;
                IF $2 THEN  -- an expression with a query in it costs much, even if the query is not needed
                    IF NOT EXISTS (SELECT FROM %s WHERE %s) THEN
                        RETURN false;
                    END IF;
                END IF;
                PERFORM %s(%s) FROM %s;
                SET CONSTRAINTS ALL IMMEDIATE;
                RETURN true;
            END $body$, s.owner, format('%s was altered', function_name), source, coalesce(s.filter, 'true'), s.function,
            s.call_arguments, source));
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function_name);
    PERFORM smile.give_function(function_name, s.owner);
END $$;

-- A search path, each name of it quoted.
CREATE OR REPLACE FUNCTION smile.quoted_path(path text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce(string_agg(quote_ident(coalesce(replace(m[1], '""', '"'), m[2])), ', ' ORDER BY n), quote_literal(''))
    FROM regexp_matches(path, '"((?:[^"]|"")*)"|([^,\s"]+)', 'g') WITH ORDINALITY AS names(m, n)
$$;

-- Makes a role the owner of a function. Unless the installer is a superuser, it must be a member of the role, and the role
-- needs CREATE on the schema at this moment.
CREATE OR REPLACE FUNCTION smile.give_function(function_name text, owner name) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    installer name := smile.installer();
    needs_create boolean := NOT has_schema_privilege(owner, 'smile', 'CREATE')
        AND NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = installer);
BEGIN
    IF NOT pg_has_role(installer, owner, 'USAGE') THEN
        PERFORM smile.fail('E090', format('%s, which delivers events, may not act as %s', installer, owner),
            format('GRANT %I TO %I.', owner, installer));
    END IF;
    IF needs_create THEN
        PERFORM pg_advisory_xact_lock(1936550252, 4);  -- PostgreSQL refuses grants at the same time
        EXECUTE format('GRANT CREATE ON SCHEMA smile TO %I', owner);
    END IF;
    EXECUTE format('ALTER FUNCTION %s OWNER TO %I', function_name, owner);
    IF needs_create THEN
        EXECUTE format('REVOKE CREATE ON SCHEMA smile FROM %I', owner);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION smile.drop_subscription(name text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments) VALUES ('drop_subscription', pg_catalog.jsonb_build_object('name', $1))
$$;

CREATE OR REPLACE FUNCTION smile.command_drop_subscription(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    dropped smile.subscription;
BEGIN
    SELECT s.* INTO dropped FROM smile.subscription s
    WHERE lower(s.name) = lower(request ->> 'name') AND s.dropped_xid IS NULL FOR UPDATE;
    IF dropped.id IS NULL THEN
        PERFORM smile.fail('E154', format('there is no subscription %s', request ->> 'name'));
    END IF;
    PERFORM smile.check_owner(caller, dropped.owner, format('the subscription %s', dropped.name));
    UPDATE smile.subscription SET dropped_xid = pg_current_xact_id(), dropped_seq = nextval('smile.queue_seq')
    WHERE id = dropped.id;
    DELETE FROM smile.delivery_position WHERE subscription_id = dropped.id;  -- waits for a delivery, and the next one for it
    DELETE FROM smile.exception_queue WHERE subscription_id = dropped.id AND resolution IS NULL;
    EXECUTE format('DROP FUNCTION IF EXISTS smile.%I', 'call_' || dropped.id);
    RETURN NULL;
END $$;
