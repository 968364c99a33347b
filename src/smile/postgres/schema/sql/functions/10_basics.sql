-- Errors, names and the identity of the caller.
--
-- Advisory locks have the class 1936550252. 1: the service waits for a notification. 2: an installation. 3: the service
-- captures the database, as long as it runs. 4: a grant on the schema.

CREATE OR REPLACE FUNCTION smile.fail(code text, message text, hint text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF hint IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'SM' || substr(code, 2), MESSAGE = message;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'SM' || substr(code, 2), MESSAGE = message, HINT = hint;
END $$;

CREATE OR REPLACE FUNCTION smile.installer() RETURNS name
LANGUAGE sql STABLE AS $$
    SELECT pg_get_userbyid(nspowner) FROM pg_catalog.pg_namespace WHERE nspname = 'smile'
$$;

-- Whether a role may act as the owner of an object. The role that installed the schema may act as every owner.
CREATE OR REPLACE FUNCTION smile.acts_as(caller name, owner name) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT caller = owner
        OR pg_has_role(caller, smile.installer(), 'USAGE')
        OR EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = owner AND pg_has_role(caller, oid, 'USAGE'))
$$;

CREATE OR REPLACE FUNCTION smile.check_owner(caller name, owner name, what text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT smile.acts_as(caller, owner) THEN
        PERFORM smile.fail('E090', format('%s is not the owner of %s', caller, what), format('Its owner is %s.', owner));
    END IF;
END $$;

-- Names of types, subscriptions, rules and links. 50 characters, because relations and functions have a suffix.
CREATE OR REPLACE FUNCTION smile.check_name(name text, kind text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF name IS NULL OR name !~ '^[A-Za-z_][A-Za-z0-9_]*$' OR length(name) > 50 THEN
        PERFORM smile.fail('E150', format('%L is not a name of %s', name, kind),
            'A name has up to 50 letters, digits and underscores, and does not begin with a digit.');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION smile.find_type(event_type text) RETURNS smile.event_type
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found smile.event_type;
BEGIN
    SELECT t.* INTO found FROM smile.event_type t WHERE lower(t.name) = lower(event_type) AND t.dropped_xid IS NULL;
    IF found.id IS NULL THEN
        PERFORM smile.fail('E154', format('there is no event type %s', coalesce(event_type, 'NULL')), (
            SELECT 'There are ' || string_agg(t.name, ', ' ORDER BY t.name) || '.'
            FROM smile.event_type t WHERE t.dropped_xid IS NULL));
    END IF;
    RETURN found;
END $$;

-- Wakes the service if it waits: it holds this lock while it waits for a notification. A notification makes commits wait
-- for each other, so none is sent to a service that is awake. A transaction that has notified cannot be prepared for a
-- two-phase commit: the setting smile.notify = off prevents it, and the service finds the events when it looks again.
CREATE OR REPLACE FUNCTION smile.wake() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_try_advisory_lock_shared(1936550252, 1) THEN
        PERFORM pg_advisory_unlock_shared(1936550252, 1);
    ELSIF current_setting('smile.notify', true) IS DISTINCT FROM 'off' THEN
        NOTIFY smile;
    END IF;
END $$;

-- Commands. A function that runs with the rights of its owner does not know its caller. A trigger function that runs with
-- the rights of the caller does: so a command is inserted in a view, the first trigger writes the caller into it, and the
-- second one, which has the rights of the owner, executes it. A caller who inserts into the view gets the same.

CREATE OR REPLACE VIEW smile.command AS
    SELECT NULL::text AS name, NULL::jsonb AS arguments, NULL::name AS caller, NULL::jsonb AS result WHERE false;

CREATE OR REPLACE FUNCTION smile.set_caller() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.caller := current_user;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION smile.execute_command() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
SET client_min_messages = warning AS $$
BEGIN
    IF TG_RELID <> 'smile.command'::regclass
        OR to_regprocedure(format('smile.%I(name, jsonb)', 'command_' || NEW.name)) IS NULL THEN
        PERFORM smile.fail('E154', format('there is no command %s', NEW.name));
    END IF;
    EXECUTE format('SELECT smile.%I($1, $2)', 'command_' || NEW.name) INTO NEW.result USING NEW.caller, NEW.arguments;
    PERFORM smile.wake();
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER a_set_caller INSTEAD OF INSERT ON smile.command
    FOR EACH ROW EXECUTE FUNCTION smile.set_caller();
CREATE OR REPLACE TRIGGER b_execute INSTEAD OF INSERT ON smile.command
    FOR EACH ROW EXECUTE FUNCTION smile.execute_command();
