-- Advertisements and publishing. The function publish_NAME of a type checks an event, and adds it to a queue.

CREATE OR REPLACE FUNCTION smile.advertise(event_type text, condition text DEFAULT NULL) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments)
    VALUES ('advertise', pg_catalog.jsonb_build_object('event_type', event_type, 'condition', condition))
$$;

CREATE OR REPLACE FUNCTION smile.command_advertise(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    type smile.event_type := smile.find_type(request ->> 'event_type');
    advertised smile.advertisement;
BEGIN
    PERFORM smile.check_publish(caller, type);
    PERFORM FROM smile.event_type t WHERE t.id = type.id FOR NO KEY UPDATE;
    SELECT a.* INTO advertised FROM smile.advertisement a WHERE a.type_id = type.id AND a.dropped_xid IS NULL;
    IF advertised.id IS NOT NULL THEN
        IF advertised.condition IS NOT DISTINCT FROM request ->> 'condition' THEN
            RETURN NULL;
        END IF;
        PERFORM smile.fail('E155', format('%s is advertised with another condition', type.name),
            format('Use DROP ADVERTISEMENT %s first.', type.name));
    END IF;
    IF request ->> 'condition' IS NOT NULL THEN
        PERFORM smile.check_condition(type, request ->> 'condition');
    END IF;
    INSERT INTO smile.advertisement (type_id, owner, condition) VALUES (type.id, caller, request ->> 'condition');
    PERFORM smile.define_publish(type.id);
    RETURN NULL;
END $$;

-- The condition is evaluated with the rights of the installer. So it may use the event's columns, and immutable functions
-- and operators of PostgreSQL itself: the server checks this for a generated column.
CREATE OR REPLACE FUNCTION smile.check_condition(type smile.event_type, condition text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    message text;
BEGIN
    EXECUTE format('CREATE TEMPORARY TABLE smile_condition (LIKE smile.%I)', lower(type.name) || '_event');
    BEGIN
        PERFORM smile.check_expression(condition);
        IF strpos(condition, '\') > 0 THEN  -- what ends a string would depend on its kind
            RAISE syntax_error USING MESSAGE = 'backslashes are not allowed';
        END IF;
        -- A view is not planned: so nothing is evaluated before it is known what the condition uses.
        EXECUTE format('CREATE TEMPORARY VIEW smile_condition_view AS SELECT (%s) AS condition FROM pg_temp.smile_condition', condition);
        IF EXISTS (
            SELECT FROM pg_rewrite r JOIN pg_depend p ON p.classid = 'pg_rewrite'::regclass AND p.objid = r.oid
            WHERE r.ev_class = 'pg_temp.smile_condition_view'::regclass
                AND p.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass))
        THEN
            RAISE feature_not_supported USING MESSAGE = 'it uses functions, operators or types that are not part of PostgreSQL';
        END IF;
        DROP VIEW pg_temp.smile_condition_view;
        EXECUTE format('ALTER TABLE pg_temp.smile_condition ADD smile_condition boolean GENERATED ALWAYS AS (%s) STORED', condition);
    EXCEPTION WHEN syntax_error_or_access_rule_violation OR invalid_object_definition OR feature_not_supported THEN
        message := SQLERRM;
    END;
    IF message IS NULL AND EXISTS (
        SELECT FROM pg_attrdef d JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
        WHERE d.adrelid = 'pg_temp.smile_condition'::regclass
            AND p.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass))
    THEN
        message := 'it uses functions, operators or types that are not part of PostgreSQL';
    END IF;
    DROP TABLE pg_temp.smile_condition;
    IF message IS NOT NULL THEN
        PERFORM smile.fail('E152', format('the condition of the advertisement of %s cannot be used: %s', type.name, message),
            'It may use the columns of the event, and functions and operators of PostgreSQL that are immutable.');
    END IF;
END $$;

-- Raises a syntax error unless the text is one expression: it ends where its parentheses end.
CREATE OR REPLACE FUNCTION smile.check_expression(expression text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    depth integer := 0;
    token text;
BEGIN
    IF expression ~ '--|/\*|\$' THEN
        RAISE syntax_error USING MESSAGE = 'comments, dollar quotes and parameters are not allowed';
    END IF;
    FOR token IN
        SELECT t[1] FROM regexp_matches(expression, '''(?:[^'']|'''')*''|"(?:[^"]|"")*"|.', 'g') AS t
    LOOP
        depth := depth + CASE token WHEN '(' THEN 1 WHEN ')' THEN -1 ELSE 0 END;
        IF depth < 0 OR token = ';' THEN
            RAISE syntax_error USING MESSAGE = format('unexpected %s', token);
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION smile.unadvertise(event_type text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments)
    VALUES ('unadvertise', pg_catalog.jsonb_build_object('event_type', event_type))
$$;

CREATE OR REPLACE FUNCTION smile.command_unadvertise(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    type smile.event_type := smile.find_type(request ->> 'event_type');
    advertised smile.advertisement;
BEGIN
    PERFORM FROM smile.event_type t WHERE t.id = type.id FOR NO KEY UPDATE;
    SELECT a.* INTO advertised FROM smile.advertisement a WHERE a.type_id = type.id AND a.dropped_xid IS NULL;
    IF advertised.id IS NULL OR type.source_table IS NOT NULL THEN
        PERFORM smile.fail('E154', format('there is no advertisement of %s that can be dropped', type.name));
    END IF;
    IF NOT smile.acts_as(caller, type.owner) THEN
        PERFORM smile.check_owner(caller, advertised.owner, format('the advertisement of %s', type.name));
    END IF;
    UPDATE smile.advertisement SET dropped_xid = pg_current_xact_id(), dropped_seq = nextval('smile.queue_seq')
    WHERE id = advertised.id;
    PERFORM smile.define_publish(type.id);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION smile.check_publish(caller name, type smile.event_type) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF type.source_table IS NOT NULL THEN
        PERFORM smile.fail('E151', format('%s is the stream of a table', type.name), 'Change the table.');
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'smile'::regnamespace AND p.proname = 'publish_' || lower(type.name)
            AND has_function_privilege(caller, p.oid, 'EXECUTE'))
    THEN
        PERFORM smile.fail('E090', format('%s may not publish %s', caller, type.name),
            format('GRANT PUBLISH ON EVENT TYPE %s TO %I.', type.name, caller));
    END IF;
END $$;

-- Writes the function publish_NAME, which keeps its privileges. What is advertised is part of it.
CREATE OR REPLACE FUNCTION smile.define_publish(id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    type smile.event_type;
    advertised smile.advertisement;
    columns smile.event_column[];
    function_name text;
    parameters text;
    checks text := '';
    event_values text;
    modes text[];
    condition text := '';
    grantees text[];
BEGIN
    SELECT t.* INTO type FROM smile.event_type t WHERE t.id = define_publish.id;
    SELECT a.* INTO advertised FROM smile.advertisement a WHERE a.type_id = type.id AND a.dropped_xid IS NULL;
    columns := ARRAY(SELECT c FROM smile.event_column c WHERE c.type_id = type.id ORDER BY c.position);
    function_name := format('smile.%I', 'publish_' || lower(type.name));
    SELECT string_agg(format('%I %s', c.name, smile.parameter_type(c)), ', ' ORDER BY c.position),
        string_agg(smile.refuse_value(type.name, '$' || c.position, c, smile.wrong_parameter('$' || c.position, c)), '' ORDER BY c.position),
        string_agg(format('%s AS %I', smile.value_to_json(smile.parameter_value(c), c), c.name), ', ' ORDER BY c.position)
    INTO parameters, checks, event_values FROM unnest(columns) AS c;
    grantees := smile.drop_other_publish(type.name, (SELECT string_agg(smile.parameter_type(c) || ', ', '' ORDER BY c.position)
        FROM unnest(columns) AS c) || 'text, text');
    -- A column may have the name of a mode.
    SELECT array_agg(CASE WHEN m = ANY (SELECT c.name FROM unnest(columns) AS c) THEN '' ELSE m END ORDER BY n)
    INTO modes FROM unnest(ARRAY['visibility', 'reliability']) WITH ORDINALITY AS modes(m, n);
    IF advertised.id IS NULL THEN
        checks := format('PERFORM smile.fail(''E151'', %L, %L);', format('%s is not advertised', type.name),
            format('Use ADVERTISE %s first.', type.name)) || checks;
    ELSIF advertised.condition IS NOT NULL THEN
        condition := format('IF (SELECT (%s) FROM (SELECT %s) AS event) IS NOT TRUE THEN PERFORM smile.fail(''E151'', %L, %L); END IF;',
            advertised.condition, (SELECT string_agg(format('%s AS %I', smile.parameter_value(c), c.name), ', ') FROM unnest(columns) AS c),
            format('an event that is not advertised of %s', type.name), format('Advertised are events with %s.', advertised.condition));
    END IF;
    EXECUTE format($function$
        CREATE OR REPLACE FUNCTION %s(%s, %s text DEFAULT 'deferred', %s text DEFAULT 'guaranteed') RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS %L
        $function$, function_name, parameters, modes[1], modes[2], format($body$
            #variable_conflict use_column
            BEGIN
                %s
                %s
                PERFORM smile.enqueue(%s, (SELECT row_to_json(event) FROM (SELECT %s) AS event), $%s, $%s);
            END $body$, checks, condition, type.id, event_values, cardinality(columns) + 1, cardinality(columns) + 2));
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function_name);
    IF cardinality(grantees) > 0 THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', function_name, array_to_string(grantees, ', '));
    END IF;
END $$;

-- The type of the parameter of a column. A call converts values only where nothing can be lost, and an INSERT also in other
-- cases: so integers may be given as any exact number, and are rounded as by INSERT.
CREATE OR REPLACE FUNCTION smile.parameter_type(c smile.event_column) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN c.postgres_type IN ('smallint', 'integer', 'bigint') THEN 'numeric'
        WHEN c.postgres_type = 'real' THEN 'double precision'
        ELSE c.postgres_type
    END
$$;

-- The value of a column, from its parameter.
CREATE OR REPLACE FUNCTION smile.parameter_value(c smile.event_column) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN smile.parameter_type(c) = c.postgres_type THEN '$' || c.position ELSE format('$%s::%s', c.position, c.postgres_type) END
$$;

-- The condition that a parameter is not a value of its column.
CREATE OR REPLACE FUNCTION smile.wrong_parameter(value text, c smile.event_column) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE c.postgres_type
        WHEN 'smallint' THEN format('NOT round(%s) BETWEEN -32768 AND 32767', value)
        WHEN 'integer' THEN format('NOT round(%s) BETWEEN -2147483648 AND 2147483647', value)
        WHEN 'bigint' THEN format('NOT round(%s) BETWEEN -9223372036854775808 AND 9223372036854775807', value)
        -- From the first one on, it is rounded to infinity; up to the second one, to 0.
        WHEN 'real' THEN format('NOT abs(%1$s) < 3.4028235677973366e38 OR %1$s <> 0 AND abs(%1$s) <= 7.006492321624085e-46', value)
        ELSE smile.wrong_value(value, c)
    END
$$;

-- Drops the function publish_NAME if it has other parameters, because an earlier version has written it. Returns the roles
-- that may execute it.
CREATE OR REPLACE FUNCTION smile.drop_other_publish(type_name text, parameter_types text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    function_name text := 'publish_' || lower(type_name);
    grantees text[];
    users text;
    old record;
BEGIN
    SELECT p.oid::regprocedure AS signature, p.proacl, p.proowner INTO old FROM pg_catalog.pg_proc AS p
    WHERE p.pronamespace = 'smile'::regnamespace AND p.proname = function_name
        AND p.oid IS DISTINCT FROM to_regprocedure(format('smile.%I(%s)', function_name, parameter_types))::oid;
    IF old.signature IS NULL THEN
        RETURN ARRAY[]::text[];
    END IF;
    grantees := ARRAY(SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
        FROM aclexplode(old.proacl) AS a WHERE a.privilege_type = 'EXECUTE' AND a.grantee <> old.proowner);
    BEGIN
        EXECUTE format('DROP FUNCTION %s', old.signature);
    EXCEPTION WHEN dependent_objects_still_exist THEN
        GET STACKED DIAGNOSTICS users = PG_EXCEPTION_DETAIL;
        PERFORM smile.fail('E155', format('smile.%s gets other parameters, but it is used: %s', function_name, users),
            'Drop what uses it, and create it again afterwards.');
    END;
    RETURN grantees;
END $$;

-- The statement that refuses a wrong value of a column.
CREATE OR REPLACE FUNCTION smile.value_check(type_name text, value text, c smile.event_column) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN smile.refuse_value(type_name, value, c, smile.wrong_value(value, c));
END $$;

-- The same, if `wrong` is the condition that it is wrong; it may be NULL.
CREATE OR REPLACE FUNCTION smile.refuse_value(type_name text, value text, c smile.event_column, wrong text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    statements text := '';
BEGIN
    IF c.is_not_null THEN
        statements := format('IF %s IS NULL THEN PERFORM smile.fail(''E080'', %L); END IF; ', value,
            format('%s.%s is NULL', type_name, c.name));
    END IF;
    IF wrong IS NOT NULL THEN
        statements := statements || format('IF %s THEN PERFORM smile.fail(''E078'', %L || coalesce(left(%s::text, 50), ''NULL'') || %L); END IF; ',
            wrong, format('%s.%s: ', type_name, c.name), value, format(' does not fit %s', c.postgres_type));
    END IF;
    RETURN statements;
END $$;

-- The condition that a value is not one of SMILE: NaN, infinite, too large or too long. NULL if all values are.
CREATE OR REPLACE FUNCTION smile.wrong_value(value text, c smile.event_column) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    digits text[] := regexp_match(c.smile_type, '^decimal\((\d+), (\d+)\)$');
    length text := (regexp_match(c.postgres_type, '^(?:character|bit)[a-z ]*\((\d+)\)$'))[1];
BEGIN
    RETURN CASE
        WHEN c.postgres_type = 'numeric' THEN format('abs(%s) >= 1e20 OR min_scale(%s) > 18', value, value)
        WHEN digits IS NOT NULL
            THEN format('abs(round(%s, %s)) >= 1e%s', value, digits[2], digits[1]::integer - digits[2]::integer)
        WHEN c.smile_type = 'float' THEN format('NOT abs(%s) < ''Infinity''', value)
        WHEN c.smile_type = 'timestamp' AND c.postgres_type LIKE '%with time zone'
            THEN format('NOT %s BETWEEN ''0001-01-01 00:00:00Z'' AND ''9999-12-31 23:59:59.999999Z''', value)
        WHEN c.smile_type = 'timestamp'
            THEN format('NOT %s BETWEEN ''0001-01-01'' AND ''9999-12-31 23:59:59.999999''', value)
        WHEN c.smile_type = 'date' THEN format('NOT %s BETWEEN ''0001-01-01'' AND ''9999-12-31''', value)
        WHEN c.smile_type = 'interval'
            THEN format('extract(year FROM %s) <> 0 OR extract(month FROM %s) <> 0 OR abs(extract(epoch FROM %s)) > 9007199254',
                value, value, value)
        WHEN c.smile_type = 'json' THEN format('length(%s::text) > 1048576', value)
        WHEN length IS NOT NULL THEN format('length(rtrim(%s::text, '' '')) > %s', value, length)
    END;
END $$;

-- The expression of a value as SMILE reads it in JSON: times in UTC, intervals in ticks, bytes in hexadecimal.
CREATE OR REPLACE FUNCTION smile.value_to_json(value text, c smile.event_column) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE
        WHEN c.smile_type = 'timestamp' AND c.postgres_type LIKE '%with time zone'
            THEN format('%s::%s AT TIME ZONE ''UTC''', value, c.postgres_type)
        WHEN c.smile_type = 'timestamp' THEN format('%s::%s', value, c.postgres_type)
        WHEN c.smile_type = 'interval' THEN format('(extract(epoch FROM %s) * 1024000000)::bigint', value)
        WHEN c.smile_type = 'bytes' THEN format('''\x'' || encode(%s, ''hex'')', value)
        WHEN c.smile_type = 'string' AND c.postgres_type ~ '^(text|character( varying)?(\(\d+\))?|name|uuid|"char")$'
            THEN format('%s::text', value)
        -- A cast of an enumeration to text may be a function of its owner.
        WHEN c.smile_type = 'string' THEN format('CASE WHEN %s IS NOT NULL THEN pg_catalog.concat(%s) END', value, value)
        WHEN c.smile_type = 'float' THEN format('%s::double precision', value)
        WHEN c.smile_type LIKE 'decimal%' AND c.postgres_type <> 'numeric' THEN format('%s::%s', value, c.postgres_type)
        ELSE value
    END;
END $$;

-- The role of the session. Which role called a function that runs with the rights of its owner is not known.
CREATE OR REPLACE FUNCTION smile.session_role() RETURNS name
LANGUAGE sql STABLE AS $$
    SELECT CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END
$$;

-- Adds an event to a queue, in this transaction or outside of it.
CREATE OR REPLACE FUNCTION smile.enqueue(id integer, event json, visibility text, reliability text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    publisher name := smile.session_role();
BEGIN
    IF octet_length(event::text) > 1048576 THEN
        PERFORM smile.fail('E092', format('an event has %s bytes, but the limit is 1048576', octet_length(event::text)));
    END IF;
    IF visibility = 'deferred' AND reliability = 'guaranteed' THEN
        INSERT INTO smile.in_queue (type_id, event, publisher) VALUES (id, event, publisher);
        PERFORM smile.wake();
    ELSIF lower(visibility) NOT IN ('deferred', 'immediate') OR visibility IS NULL THEN
        PERFORM smile.fail('E093', format('%L is not a visibility', visibility), 'It is deferred or immediate.');
    ELSIF lower(reliability) NOT IN ('guaranteed', 'non-guaranteed') OR reliability IS NULL THEN
        PERFORM smile.fail('E093', format('%L is not a reliability', reliability), 'It is guaranteed or non-guaranteed.');
    ELSIF lower(visibility) = 'immediate' THEN
        PERFORM smile.send_at_once(id, event, publisher, lower(reliability));
    ELSIF lower(reliability) = 'guaranteed' THEN
        INSERT INTO smile.in_queue (type_id, event, publisher) VALUES (id, event, publisher);
        PERFORM smile.wake();
    ELSE
        INSERT INTO smile.in_queue_unlogged (type_id, event, publisher) VALUES (id, event, publisher);
        PERFORM smile.wake();
    END IF;
END $$;

-- Publishes an event that is given as JSON. A column that is missing is NULL.
CREATE OR REPLACE FUNCTION smile.publish(
    event_type text, event json, visibility text DEFAULT 'deferred', reliability text DEFAULT 'guaranteed') RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    type record;
    stem text;
    wrong text;
    event_row text;
BEGIN
    SELECT t.name, t.columns, t.source_table INTO type FROM smile.event_types t WHERE lower(t.name) = lower(event_type);
    IF type.name IS NULL THEN
        PERFORM smile.fail('E154', format('there is no event type %s', coalesce(event_type, 'NULL')));
    END IF;
    stem := lower(type.name);
    IF type.source_table IS NOT NULL THEN
        PERFORM smile.fail('E151', format('%s is the stream of a table', type.name), 'Change the table.');
    END IF;
    IF NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'smile'::regnamespace AND p.proname = 'publish_' || stem
        AND has_function_privilege(p.oid, 'EXECUTE'))
    THEN
        PERFORM smile.fail('E090', format('%s may not publish %s', current_user, type.name),
            format('GRANT PUBLISH ON EVENT TYPE %s TO %I.', type.name, current_user));
    END IF;
    IF json_typeof(event) IS DISTINCT FROM 'object' THEN
        PERFORM smile.fail('E074', format('an event of %s is a JSON object', type.name));
    END IF;
    SELECT k INTO wrong FROM json_object_keys(event) AS k
    WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(type.columns) AS c WHERE c ->> 'name' = k);
    IF FOUND THEN
        PERFORM smile.fail('E077', format('%s has no column %s', type.name, left(wrong, 100)), format('It has %s.', (
            SELECT string_agg(c ->> 'name', ', ') FROM jsonb_array_elements(type.columns) AS c)));
    END IF;
    SELECT k INTO wrong FROM json_object_keys(event) AS k GROUP BY k HAVING count(*) > 1;
    IF FOUND THEN
        PERFORM smile.fail('E075', format('the column %s is given twice', wrong), 'Remove one of them.');
    END IF;
    BEGIN
        -- A subtransaction that writes nothing has no id.
        EXECUTE format('SELECT smile.%I($1)::text', stem || '_row') INTO event_row USING event;
    EXCEPTION WHEN data_exception THEN
        PERFORM smile.fail('E078', format('an event of %s: %s', type.name, SQLERRM));
    END;
    EXECUTE format('SELECT smile.%I(%s, $2, $3)', 'publish_' || stem, (
        SELECT string_agg(format('($1::smile.%I).%I', stem || '_event', c ->> 'name'), ', ' ORDER BY n)
        FROM jsonb_array_elements(type.columns) WITH ORDINALITY AS columns(c, n))) USING event_row, visibility, reliability;
END $$;
