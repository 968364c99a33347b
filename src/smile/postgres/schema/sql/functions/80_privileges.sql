-- GRANT and REVOKE of PUBLISH and SUBSCRIBE: EXECUTE on publish_NAME, and SELECT on the views of the queues.

CREATE OR REPLACE FUNCTION smile."grant"(privilege text, event_type text, role text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments)
    VALUES ('grant', pg_catalog.jsonb_build_object('privilege', privilege, 'event_type', event_type, 'role', role))
$$;

CREATE OR REPLACE FUNCTION smile."revoke"(privilege text, event_type text, role text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments)
    VALUES ('revoke', pg_catalog.jsonb_build_object('privilege', privilege, 'event_type', event_type, 'role', role))
$$;

CREATE OR REPLACE FUNCTION smile.command_grant(caller name, request jsonb) RETURNS jsonb
LANGUAGE sql AS $$ SELECT smile.change_privilege(caller, request, 'GRANT %s ON %s TO %s') $$;

CREATE OR REPLACE FUNCTION smile.command_revoke(caller name, request jsonb) RETURNS jsonb
LANGUAGE sql AS $$ SELECT smile.change_privilege(caller, request, 'REVOKE %s ON %s FROM %s') $$;

CREATE OR REPLACE FUNCTION smile.change_privilege(caller name, request jsonb, statement text) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    type smile.event_type := smile.find_type(request ->> 'event_type');
    stem text := lower(type.name);
    role text := request ->> 'role';
BEGIN
    PERFORM smile.check_owner(caller, type.owner, format('the event type %s', type.name));
    PERFORM FROM smile.event_type AS t WHERE t.id = type.id FOR NO KEY UPDATE;  -- PostgreSQL refuses grants at the same time
    IF lower(role) = 'public' THEN
        role := 'PUBLIC';
    ELSIF EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
        role := quote_ident(role);
    ELSE
        PERFORM smile.fail('E154', format('there is no role %s', coalesce(role, 'NULL')));
    END IF;
    CASE lower(request ->> 'privilege')
        WHEN 'publish' THEN
            IF type.source_table IS NOT NULL THEN
                PERFORM smile.fail('E151', format('%s is the stream of a table', type.name), 'Nobody can publish to it.');
            END IF;
            EXECUTE format(statement, 'EXECUTE', format('FUNCTION smile.%I', 'publish_' || stem), role);
        WHEN 'subscribe' THEN
            EXECUTE format(statement, 'SELECT', format('smile.%I, smile.%I, smile.%I',
                stem || '_in', stem || '_out', stem || '_exception'), role);
        ELSE
            PERFORM smile.fail('E093', format('%L is not a privilege', request ->> 'privilege'), 'It is publish or subscribe.');
    END CASE;
    RETURN NULL;
END $$;
