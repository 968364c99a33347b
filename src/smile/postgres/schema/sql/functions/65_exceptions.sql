-- The exception queue: events whose function has failed. The owner of the subscription retries or drops each of them.
-- Events that the broker has refused have subscription 0. The owner of the type retries them: they are published again.

-- Calls the function again, in this transaction. Returns whether it succeeded; if not, the queue has the new error. Deferred
-- constraints of the transaction are checked before, with the rights of the caller.
CREATE OR REPLACE FUNCTION smile.retry_exception(id bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_delivered boolean;
BEGIN
    SET CONSTRAINTS ALL IMMEDIATE;
    INSERT INTO smile.command AS c (name, arguments) VALUES ('retry_exception', jsonb_build_object('id', id))
    RETURNING c.result::boolean INTO is_delivered;
    RETURN is_delivered;
END $$;

CREATE OR REPLACE FUNCTION smile.drop_exception(id bigint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments) VALUES ('drop_exception', pg_catalog.jsonb_build_object('id', $1))
$$;

CREATE OR REPLACE FUNCTION smile.command_retry_exception(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    x smile.exception_queue := smile.find_exception(caller, (request ->> 'id')::bigint);
    filters boolean := (SELECT s.filter_evaluation = 'database' FROM smile.subscription AS s WHERE s.id = x.subscription_id);
    state text;
    problem text;
    problem_detail text;
    problem_context text;
BEGIN
    IF x.subscription_id = 0 THEN
        INSERT INTO smile.in_queue (type_id, event, publisher) VALUES (x.type_id, x.event, caller);
        PERFORM smile.resolve_exception(x, 'delivered');
        RETURN to_jsonb(true);
    END IF;
    BEGIN
        EXECUTE format('SELECT smile.call_%s($1, $2)', x.subscription_id) USING x.event, filters;
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);  -- the function may have set it
        PERFORM smile.check_finished(x.subscription_id, smile.has_trigger_roles());
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, problem = MESSAGE_TEXT, problem_detail = PG_EXCEPTION_DETAIL,
            problem_context = PG_EXCEPTION_CONTEXT;
        UPDATE smile.exception_queue AS q
        SET sqlstate = state, message = problem, detail = problem_detail, context = problem_context, attempts = q.attempts + 1,
            last_attempt_time = clock_timestamp()
        WHERE q.id = x.id;
        RETURN to_jsonb(false);
    END;
    INSERT INTO smile.delivered (subscription_id, subscription, type_id, origin, tick, sequence, event, enqueue_time, attempts)
    SELECT x.subscription_id, x.subscription, x.type_id, x.origin, x.tick, x.sequence, x.event, x.enqueue_time, x.attempts + 1
    FROM smile.event_type AS t WHERE t.id = x.type_id AND t.out_auditable;
    PERFORM smile.resolve_exception(x, 'delivered');
    RETURN to_jsonb(true);
END $$;

CREATE OR REPLACE FUNCTION smile.command_drop_exception(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM smile.resolve_exception(smile.find_exception(caller, (request ->> 'id')::bigint), 'dropped');
    RETURN NULL;
END $$;

-- Locks an exception that is not resolved yet.
CREATE OR REPLACE FUNCTION smile.find_exception(caller name, id bigint) RETURNS smile.exception_queue
LANGUAGE plpgsql AS $$
DECLARE
    x smile.exception_queue;
BEGIN
    SELECT q.* INTO x FROM smile.exception_queue AS q WHERE q.id = find_exception.id AND q.resolution IS NULL FOR UPDATE;
    IF x.id IS NULL THEN
        PERFORM smile.fail('E154', format('there is no exception %s', coalesce(id::text, 'NULL')));
    END IF;
    PERFORM smile.check_owner(caller, s.owner, format('the subscription %s', s.name))
    FROM smile.subscription AS s WHERE s.id = x.subscription_id;
    PERFORM smile.check_owner(caller, t.owner, format('the event type %s', t.name))
    FROM smile.event_type AS t WHERE t.id = x.type_id AND x.subscription_id = 0;
    RETURN x;
END $$;

CREATE OR REPLACE FUNCTION smile.resolve_exception(x smile.exception_queue, resolution text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT t.exception_auditable FROM smile.event_type AS t WHERE t.id = x.type_id) THEN
        UPDATE smile.exception_queue AS q
        SET resolution = resolve_exception.resolution, last_attempt_time = clock_timestamp()
        WHERE q.id = x.id;
    ELSE
        DELETE FROM smile.exception_queue AS q WHERE q.id = x.id;
    END IF;
END $$;

-- Gives up a delivery that is not made, because its function lacks resources again and again, or never ends: its event goes
-- to the exception queue, and the deliveries after it go on. It waits until the present call of the function has ended.
CREATE OR REPLACE FUNCTION smile.skip_delivery(subscription text, tick bigint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.command (name, arguments)
    VALUES ('skip_delivery', pg_catalog.jsonb_build_object('subscription', $1, 'tick', $2))
$$;

CREATE OR REPLACE FUNCTION smile.command_skip_delivery(caller name, request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    s smile.subscription;
    d record;
BEGIN
    SELECT u.* INTO s FROM smile.subscription AS u
    WHERE lower(u.name) = lower(request ->> 'subscription') AND u.dropped_xid IS NULL;
    IF s.id IS NULL THEN
        PERFORM smile.fail('E154', format('there is no subscription %s', coalesce(request ->> 'subscription', 'NULL')));
    END IF;
    PERFORM smile.check_owner(caller, s.owner, format('the subscription %s', s.name));
    SELECT p.* INTO d FROM smile.pending_delivery AS p WHERE p.subscription = s.name ORDER BY p.tick LIMIT 1;
    IF d.tick IS DISTINCT FROM (request ->> 'tick')::bigint THEN
        PERFORM smile.fail('E154', format('the next delivery to %s has not the tick %s', s.name, coalesce(request ->> 'tick', 'NULL')),
            'The queue out of the event type has the deliveries that wait.');
    END IF;
    PERFORM smile.add_exception(s.id, d.origin, d.tick, d.sequence, d.event, 'SM148', 'the delivery was given up', '', '', 0);
    RETURN NULL;
END $$;
