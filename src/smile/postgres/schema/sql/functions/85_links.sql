-- Links to other brokers, and tables that are kept equal to views. The service reads both: they concern the broker as a whole,
-- so only the role that installed the schema, or a member of it, creates them.

CREATE OR REPLACE FUNCTION smile.check_installer(caller name, what text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_has_role(caller, smile.installer(), 'USAGE') THEN
        PERFORM smile.fail('E090', format('%s may not change %s', caller, what), format('Only %s may.', smile.installer()));
    END IF;
END $$;

CREATE OR REPLACE FUNCTION smile.create_link(name text, address text, port integer, username text, password text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments)
    VALUES ('create_link', pg_catalog.jsonb_build_object('name', $1, 'address', address, 'port', port, 'username', username,
        'password', password))
$$;

CREATE OR REPLACE FUNCTION smile.command_create_link(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM smile.check_name(request ->> 'name', 'a link');
    PERFORM smile.check_installer(caller, 'links');
    IF coalesce(request ->> 'address', '') = '' OR (request ->> 'port')::integer NOT BETWEEN 1 AND 65535 THEN
        PERFORM smile.fail('E093', 'a link needs an address, and a port from 1 to 65535');
    END IF;
    IF EXISTS (SELECT FROM smile.link AS l WHERE lower(l.name) = lower(request ->> 'name') AND l.dropped_xid IS NULL) THEN
        PERFORM smile.fail('E155', format('there is a link %s already', request ->> 'name'), 'Choose another name, or drop it.');
    END IF;
    INSERT INTO smile.link (name, owner, address, port, username, password)
    VALUES (request ->> 'name', caller, request ->> 'address', (request ->> 'port')::integer,
        coalesce(request ->> 'username', ''), coalesce(request ->> 'password', ''));
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION smile.drop_link(name text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments) VALUES ('drop_link', pg_catalog.jsonb_build_object('name', $1))
$$;

CREATE OR REPLACE FUNCTION smile.command_drop_link(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM smile.check_installer(caller, 'links');
    UPDATE smile.link SET dropped_xid = pg_current_xact_id(), dropped_seq = nextval('smile.queue_seq'), password = ''
    WHERE lower(name) = lower(request ->> 'name') AND dropped_xid IS NULL;
    IF NOT FOUND THEN
        PERFORM smile.fail('E154', format('there is no link %s', request ->> 'name'));
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION smile.create_view_table(table_name text, view text, with_knowledge boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO smile.command (name, arguments)
    VALUES ('create_view_table', pg_catalog.jsonb_build_object('table', smile.new_table_name(table_name), 'view', view,
        'with_knowledge', with_knowledge));
END $$;

-- The full name of a table that does not exist yet, in the caller's first schema unless the name has one.
CREATE OR REPLACE FUNCTION smile.new_table_name(table_name text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    names text[] := pg_catalog.parse_ident(table_name);
BEGIN
    IF pg_catalog.cardinality(names) OPERATOR(pg_catalog.>) 2 OR (names[2] IS NULL AND pg_catalog.current_schema() IS NULL) THEN
        PERFORM smile.fail('E156', pg_catalog.format('%s is not the name of a table', table_name), 'Write schema.table.');
    END IF;
    RETURN CASE WHEN names[2] IS NULL THEN pg_catalog.format('%I.%I', pg_catalog.current_schema(), names[1])
        ELSE pg_catalog.format('%I.%I', names[1], names[2]) END;
END $$;

CREATE OR REPLACE FUNCTION smile.command_create_view_table(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM smile.check_installer(caller, 'tables of views');
    IF to_regclass(request ->> 'table') IS NOT NULL
        OR EXISTS (SELECT FROM smile.view_table AS v WHERE v.table_name = request ->> 'table' AND v.dropped_xid IS NULL) THEN
        PERFORM smile.fail('E155', format('there is a relation %s already', request ->> 'table'), 'Choose another name.');
    END IF;
    IF to_regnamespace(quote_ident((parse_ident(request ->> 'table'))[1])) IS NULL THEN
        PERFORM smile.fail('E154', format('there is no schema %s', (parse_ident(request ->> 'table'))[1]));
    END IF;
    PERFORM smile.check_name(request ->> 'view', 'a view');
    INSERT INTO smile.view_table (table_name, view, with_knowledge, owner)
    VALUES (request ->> 'table', request ->> 'view', coalesce((request ->> 'with_knowledge')::boolean, false), caller);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION smile.drop_view_table(table_name text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO smile.command (name, arguments)
    VALUES ('drop_view_table', pg_catalog.jsonb_build_object('table', smile.new_table_name(table_name)));
END $$;

CREATE OR REPLACE FUNCTION smile.command_drop_view_table(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM smile.check_installer(caller, 'tables of views');
    UPDATE smile.view_table SET dropped_xid = pg_current_xact_id(), dropped_seq = nextval('smile.queue_seq')
    WHERE table_name = request ->> 'table' AND dropped_xid IS NULL;
    IF NOT FOUND THEN
        PERFORM smile.fail('E154', format('%s is not a table of a view', request ->> 'table'));
    END IF;
    -- The service creates it later, or has created it. Another table of this name stays.
    IF obj_description(to_regclass(request ->> 'table'), 'pg_class') LIKE 'SMILE keeps it equal to the view %' THEN
        EXECUTE format('DROP TABLE %s', to_regclass(request ->> 'table'));
    END IF;
    RETURN NULL;
END $$;
