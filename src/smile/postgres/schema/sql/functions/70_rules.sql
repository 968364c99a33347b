-- Rules: a trigger publishes an event for each row that is inserted, updated or deleted. As every trigger, it runs with the
-- rights of the role that changes the table: this role needs PUBLISH.

CREATE OR REPLACE FUNCTION smile.create_rule(
    name text, operation text, table_name text, condition text, event_type text, arguments text,
    visibility text DEFAULT 'deferred', reliability text DEFAULT 'guaranteed') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    path text := pg_catalog.current_setting('search_path');
    source_table pg_catalog.regclass := smile.find_table(table_name);
    trigger_function text;
BEGIN
    PERFORM smile.check_rule(operation, source_table, condition, event_type, arguments);
    INSERT INTO smile.command AS c (name, arguments)
    VALUES ('create_rule', pg_catalog.jsonb_build_object('name', name, 'operation', operation,
        'source_table', source_table::pg_catalog.oid::bigint, 'condition', condition, 'event_type', event_type,
        'arguments', arguments, 'visibility', visibility, 'reliability', reliability, 'search_path', path))
    RETURNING c.result ->> 'function' INTO trigger_function;
    EXECUTE pg_catalog.format('CREATE TRIGGER %I AFTER %s ON %s FOR EACH ROW EXECUTE FUNCTION smile.%I()',
        'smile_rule_' OPERATOR(pg_catalog.||) pg_catalog.lower(name), operation, source_table, trigger_function);
END $$;

-- A table that the caller names. Neither function has a search path of its own: names mean what they mean to the caller.
CREATE OR REPLACE FUNCTION smile.find_table(table_name text) RETURNS regclass
LANGUAGE plpgsql STABLE AS $$
DECLARE
    source_table pg_catalog.regclass := pg_catalog.to_regclass(table_name);
BEGIN
    IF source_table IS NULL THEN
        PERFORM smile.fail('E021', pg_catalog.format('there is no table %s', coalesce(table_name, 'NULL')));
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c
        WHERE c.oid OPERATOR(pg_catalog.=) source_table AND c.relkind IN ('r', 'p'))
    THEN
        PERFORM smile.fail('E156', pg_catalog.format('%s is not a table', table_name));
    END IF;
    RETURN source_table;
END $$;

-- Plans the condition and the arguments with the rights and the search path of the caller.
CREATE OR REPLACE FUNCTION smile.check_rule(
    operation text, source_table regclass, condition text, event_type text, arguments text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    source text := CASE pg_catalog.lower(operation)
        WHEN 'insert' THEN pg_catalog.format('%s AS new', source_table)
        WHEN 'update' THEN pg_catalog.format('%s AS new, %s AS old', source_table, source_table)
        WHEN 'delete' THEN pg_catalog.format('%s AS old', source_table) END;
    plan text;
BEGIN
    IF source IS NULL THEN
        PERFORM smile.fail('E093', pg_catalog.format('%L is not an operation', operation), 'It is insert, update or delete.');
    END IF;
    BEGIN
        PERFORM smile.check_expression(coalesce(condition, 'true')), smile.check_expression(arguments);
        EXECUTE pg_catalog.format('EXPLAIN SELECT %s FROM %s WHERE %s',
            smile.publishing_call(event_type, arguments, 'deferred', 'guaranteed'), source, coalesce(condition, 'true')) INTO plan;
    EXCEPTION WHEN syntax_error_or_access_rule_violation THEN
        PERFORM smile.fail_expression(SQLSTATE, 'the rule', SQLERRM);
    END;
END $$;

-- The text of a call of publish_NAME.
CREATE OR REPLACE FUNCTION smile.publishing_call(event_type text, arguments text, visibility text, reliability text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    columns jsonb := (SELECT t.columns FROM smile.event_types AS t WHERE lower(t.name) = lower(event_type));
BEGIN
    IF columns IS NULL THEN
        PERFORM smile.fail('E154', format('there is no event type %s', coalesce(event_type, 'NULL')));
    END IF;
    -- Where a column has the name of a mode, the mode has no name.
    RETURN format('smile.%I(%s, %s%L, %s%L)', 'publish_' || lower(event_type), arguments,
        CASE WHEN columns @> '[{"name": "visibility"}]' THEN '' ELSE 'visibility => ' END, visibility,
        CASE WHEN columns @> '[{"name": "reliability"}]' THEN '' ELSE 'reliability => ' END, reliability);
END $$;

CREATE OR REPLACE FUNCTION smile.command_create_rule(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    type smile.event_type := smile.find_type(request ->> 'event_type');
    source oid := (request ->> 'source_table')::bigint::oid;
    added smile.rule;
BEGIN
    PERFORM smile.check_name(request ->> 'name', 'a rule');
    PERFORM smile.check_publish(caller, type);
    IF NOT has_table_privilege(caller, source, 'TRIGGER') THEN
        PERFORM smile.fail('E090', format('%s may not create rules on %s', caller, source::regclass),
            format('GRANT TRIGGER ON %s TO %I.', source::regclass, caller));
    END IF;
    IF lower(request ->> 'visibility') NOT IN ('deferred', 'immediate')
        OR lower(request ->> 'reliability') NOT IN ('guaranteed', 'non-guaranteed') THEN
        PERFORM smile.fail('E093', format('%s %s is not a mode of publishing', request ->> 'visibility', request ->> 'reliability'));
    END IF;
    DELETE FROM smile.rule AS r WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = r.source_table);
    IF EXISTS (SELECT FROM smile.rule AS r WHERE r.source_table = source AND lower(r.name) = lower(request ->> 'name')) THEN
        PERFORM smile.fail('E155', format('%s has a rule %s already', source::regclass, request ->> 'name'),
            'Choose another name, or drop it.');
    END IF;
    INSERT INTO smile.rule (name, type_id, owner, operation, source_table, condition, arguments, search_path, visibility, reliability)
    VALUES (request ->> 'name', type.id, caller, lower(request ->> 'operation'), source, request ->> 'condition',
        request ->> 'arguments', request ->> 'search_path', lower(coalesce(request ->> 'visibility', 'deferred')),
        lower(coalesce(request ->> 'reliability', 'guaranteed')))
    RETURNING * INTO added;
    PERFORM smile.define_rule(added);
    RETURN jsonb_build_object('function', 'rule_' || added.id);
END $$;

CREATE OR REPLACE FUNCTION smile.define_rule(r smile.rule) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION smile.%I() RETURNS trigger LANGUAGE plpgsql SET search_path = %s AS %L',
        'rule_' || r.id, smile.quoted_path(r.search_path), format($body$
            BEGIN
                IF (%s) THEN
                    PERFORM %s;
                END IF;
                RETURN NULL;
            END $body$, coalesce(r.condition, 'true'), smile.publishing_call(
                (SELECT t.name FROM smile.event_type AS t WHERE t.id = r.type_id), r.arguments, r.visibility, r.reliability)));
END $$;

CREATE OR REPLACE FUNCTION smile.drop_rule(name text, table_name text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO smile.command (name, arguments)
    VALUES ('drop_rule', pg_catalog.jsonb_build_object('name', name,
        'source_table', smile.find_table(table_name)::pg_catalog.oid::bigint));
END $$;

CREATE OR REPLACE FUNCTION smile.command_drop_rule(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    source oid := (request ->> 'source_table')::bigint::oid;
    dropped smile.rule;
BEGIN
    SELECT r.* INTO dropped FROM smile.rule AS r
    WHERE r.source_table = source AND lower(r.name) = lower(request ->> 'name') FOR UPDATE;
    IF dropped.id IS NULL THEN
        PERFORM smile.fail('E154', format('%s has no rule %s', source::regclass, request ->> 'name'));
    END IF;
    IF NOT pg_has_role(caller, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = source), 'USAGE') THEN
        PERFORM smile.check_owner(caller, dropped.owner, format('the rule %s', dropped.name));
    END IF;
    DELETE FROM smile.rule WHERE id = dropped.id;
    EXECUTE format('DROP FUNCTION smile.%I() CASCADE', 'rule_' || dropped.id);  -- with its trigger
    RETURN NULL;
END $$;
