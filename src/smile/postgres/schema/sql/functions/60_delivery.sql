-- Delivery: the functions of subscriptions are called with matching events, each in a transaction with its position.

CREATE OR REPLACE VIEW smile.delivery_positions AS
    SELECT p.subscription_id, s.name AS subscription, p.origin, p.tick
    FROM smile.delivery_position AS p JOIN smile.subscription AS s ON s.id = p.subscription_id;

-- The events of a batch, numbered from 1.
CREATE OR REPLACE FUNCTION smile.numbered_events(
    events json, OUT origin text, OUT tick bigint, OUT sequence bigint, OUT event json, OUT number bigint) RETURNS SETOF record
LANGUAGE sql IMMUTABLE AS $$
    SELECT * FROM ROWS FROM (json_to_recordset(events) AS (origin text, tick bigint, sequence bigint, event json)) WITH ORDINALITY
$$;

-- Deliveries that are registered and not made yet.
CREATE OR REPLACE VIEW smile.pending_delivery AS
    SELECT DISTINCT ON (s.id, e.origin, e.tick)
        s.type_id, s.name AS subscription, e.origin, e.tick, e.sequence, e.event, NULL::xid8 AS xid, b.enqueue_time,
        NULL::timestamptz AS delivery_time, 0 AS attempts
    FROM smile.out_batch AS b
        CROSS JOIN LATERAL unnest(b.event_numbers, b.subscriptions) AS d(number, subscription)
        JOIN LATERAL smile.numbered_events(b.events) AS e ON e.number = d.number
        JOIN smile.subscription AS s ON s.id = d.subscription AND s.dropped_xid IS NULL
        LEFT JOIN smile.delivery_position AS p ON p.subscription_id = s.id AND p.origin = e.origin
    WHERE p.tick IS NULL OR p.tick < e.tick;

CREATE OR REPLACE VIEW smile.made_delivery AS
    SELECT type_id, subscription, origin, tick, sequence, event, xid, enqueue_time, delivery_time, attempts
    FROM smile.delivered;

-- Makes deliveries in their order: of the event with the number event_numbers[i] to subscriptions[i]. The numbers ascend. A
-- delivery that was made before is skipped. When it returns, all are flushed to disk. It commits: so it cannot be called in a
-- transaction, and it has the rights of its caller.
--
-- Nothing of a function is left to the COMMIT, which could not be attributed to an event, and would have the rights of the
-- installer: deferred constraints are checked before (see define_call and check_finished).
--
-- A delivery writes its position first. That row is the lock between deliveries of the same subscription, and between a
-- delivery and the drop of its subscription, which deletes the row.
CREATE OR REPLACE PROCEDURE smile.deliver(events json, event_numbers integer[], subscriptions integer[])
LANGUAGE plpgsql AS $$
DECLARE
    attempts_max CONSTANT integer := 5;
    previous_commit CONSTANT text := current_setting('synchronous_commit');
    previous_path CONSTANT text := pg_catalog.current_setting('search_path');
    -- Since PostgreSQL 18, a deferred trigger has the rights of the role that has caused it.
    has_trigger_roles CONSTANT boolean := smile.has_trigger_roles();
    filters boolean[];  -- of each delivery: whether its filter is evaluated here
    has_auditable boolean;
    e record;
    i integer := 1;
    s integer;
    is_match boolean;
    after_call record;
    attempt integer;
    outcome text;
    state text;
    problem text;
    problem_detail text;
    problem_context text;
BEGIN
    -- For the session: it costs less than once a transaction. After an error, it stays off.
    PERFORM set_config('synchronous_commit', 'off', false);
    DELETE FROM smile.out_batch AS b WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid = b.pid);
    INSERT INTO smile.out_batch (pid, events, event_numbers, subscriptions)
    VALUES (pg_backend_pid(), deliver.events, deliver.event_numbers, deliver.subscriptions)
    ON CONFLICT (pid) DO UPDATE SET events = excluded.events, event_numbers = excluded.event_numbers,
        subscriptions = excluded.subscriptions, enqueue_time = clock_timestamp();
    COMMIT;
    filters := ARRAY(SELECT coalesce(u.filter_evaluation = 'database', true)
        FROM unnest(deliver.subscriptions) WITH ORDINALITY AS d(id, n) LEFT JOIN smile.subscription AS u ON u.id = d.id
        ORDER BY d.n);
    FOR e IN SELECT n.* FROM smile.numbered_events(deliver.events) AS n LOOP
        has_auditable := EXISTS (SELECT FROM smile.event_type AS t WHERE t.out_auditable);
        WHILE event_numbers[i] = e.number LOOP
            s := subscriptions[i];
            attempt := 0;
            LOOP
                attempt := attempt + 1;
                outcome := 'delivered';
                BEGIN
                    -- An UPDATE could read the whole table. For a subscription that was dropped there is nothing to call: then
                    -- what is inserted here is rolled back.
                    INSERT INTO smile.delivery_position AS p (subscription_id, origin, tick) VALUES (s, e.origin, e.tick)
                    ON CONFLICT ON CONSTRAINT delivery_position_pkey
                        DO UPDATE SET tick = excluded.tick WHERE p.tick < excluded.tick;
                    IF FOUND THEN
                        EXECUTE 'SELECT smile.call_' || s || '($1, $2)' INTO is_match USING e.event, filters[i];
                        -- What the function has set for its session must not concern what follows, which has other rights.
                        SELECT pg_catalog.set_config('search_path', previous_path, false) AS search_path,
                            pg_catalog.set_config('default_transaction_read_only', 'off', false) AS read_only,
                            EXISTS (SELECT FROM pg_catalog.pg_cursors AS c WHERE c.is_holdable)
                            OR NOT has_trigger_roles AND EXISTS (SELECT FROM smile.deferrable_trigger) AS is_unfinished
                        INTO after_call;
                        IF after_call.is_unfinished THEN
                            PERFORM smile.check_finished(s, has_trigger_roles);
                        END IF;
                        IF is_match AND has_auditable THEN
                            PERFORM smile.add_delivered(s, e.origin, e.tick, e.sequence, e.event, attempt);
                        END IF;
                    END IF;
                EXCEPTION
                    WHEN insufficient_resources OR system_error OR operator_intervention THEN
                        -- The event is not to blame: the caller delivers it again. It finds out which delivery it was.
                        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, problem = MESSAGE_TEXT;
                        RAISE EXCEPTION USING ERRCODE = state, MESSAGE = problem, CONSTRAINT = s, COLUMN = e.tick;
                    WHEN serialization_failure OR deadlock_detected OR lock_not_available THEN
                        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, problem = MESSAGE_TEXT,
                            problem_detail = PG_EXCEPTION_DETAIL, problem_context = PG_EXCEPTION_CONTEXT;
                        outcome := CASE WHEN attempt < attempts_max THEN 'again' ELSE 'failed' END;
                    WHEN OTHERS THEN
                        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, problem = MESSAGE_TEXT,
                            problem_detail = PG_EXCEPTION_DETAIL, problem_context = PG_EXCEPTION_CONTEXT;
                        outcome := 'failed';
                END;
                IF outcome = 'failed' THEN
                    PERFORM smile.add_exception(s, e.origin, e.tick, e.sequence, e.event, state, problem,
                        problem_detail, problem_context, attempt);
                END IF;
                COMMIT;
                EXIT WHEN outcome <> 'again';
            END LOOP;
            i := i + 1;
        END LOOP;
    END LOOP;
    PERFORM set_config('synchronous_commit', 'on', true);
    DELETE FROM smile.out_batch WHERE pid = pg_backend_pid();
    COMMIT;
    PERFORM set_config('synchronous_commit', previous_commit, false);
END $$;

CREATE OR REPLACE FUNCTION smile.has_trigger_roles() RETURNS boolean
LANGUAGE sql STABLE AS $$ SELECT current_setting('server_version_num')::integer >= 180000 $$;

-- Triggers that can be deferred and run code of their users. Those of foreign keys do not.
CREATE OR REPLACE VIEW smile.deferrable_trigger AS
    SELECT t.oid FROM pg_catalog.pg_trigger AS t
    WHERE t.tgdeferrable AND (NOT t.tgisinternal OR t.tgfoid = 'pg_catalog.unique_key_recheck'::regproc);

-- Refuses a call that leaves something to the COMMIT, with other rights: a cursor WITH HOLD, whose query would run then, or a
-- trigger that was deferred while deferred triggers ran. These run when call_ID is called again, and a trigger that is
-- deferred then follows a write, which has a command number of its own.
CREATE OR REPLACE FUNCTION smile.check_finished(subscription integer, has_trigger_roles boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    previous_path CONSTANT text := current_setting('search_path');
    first bigint;
BEGIN
    IF NOT has_trigger_roles AND EXISTS (SELECT FROM smile.deferrable_trigger) THEN
        first := smile.command_number(subscription);
        EXECUTE 'SELECT smile.call_' || subscription || '(NULL, NULL)';
        PERFORM pg_catalog.set_config('search_path', previous_path, false),
            pg_catalog.set_config('default_transaction_read_only', 'off', false);
        IF smile.command_number(subscription) <> first + 1 THEN
            PERFORM smile.fail('E147', 'a trigger is deferred again while deferred triggers run',
                'A function that is called for an event defers no trigger beyond its own call.');
        END IF;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_cursors AS c WHERE c.is_holdable) THEN
        PERFORM smile.fail('E147', 'the function has left a cursor WITH HOLD', 'Close it, or declare it without WITH HOLD.');
    END IF;
END $$;

-- The number of a command in this transaction. Each command that writes has the next one.
CREATE OR REPLACE FUNCTION smile.command_number(subscription integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    INSERT INTO smile.command_probe AS p VALUES (subscription)
    ON CONFLICT (subscription_id) DO UPDATE SET subscription_id = excluded.subscription_id
    RETURNING p.cmin::text::bigint INTO number;
    RETURN number;
END $$;

-- Keeps a delivery if its queue is auditable.
CREATE OR REPLACE FUNCTION smile.add_delivered(
    subscription integer, origin text, tick bigint, sequence bigint, event json, attempts integer) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO smile.delivered (subscription_id, subscription, type_id, origin, tick, sequence, event, enqueue_time, attempts)
    SELECT s.id, s.name, s.type_id, $2, $3, $4, $5,
        coalesce((SELECT b.enqueue_time FROM smile.out_batch AS b WHERE b.pid = pg_backend_pid()), clock_timestamp()), $6
    FROM smile.subscription AS s JOIN smile.event_type AS t ON t.id = s.type_id
    WHERE s.id = $1 AND t.out_auditable
$$;

CREATE OR REPLACE FUNCTION smile.add_exception(
    subscription integer, origin text, tick bigint, sequence bigint, event json, state text, message text, detail text,
    context text, attempts integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM smile.subscription AS s WHERE s.id = subscription AND s.dropped_xid IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO smile.delivery_position AS p (subscription_id, origin, tick)
    VALUES (subscription, add_exception.origin, add_exception.tick)
    ON CONFLICT ON CONSTRAINT delivery_position_pkey DO UPDATE SET tick = excluded.tick WHERE p.tick < excluded.tick;
    IF FOUND THEN
        INSERT INTO smile.exception_queue (subscription_id, subscription, type_id, origin, tick, sequence, event, sqlstate,
            message, detail, context, attempts)
        SELECT s.id, s.name, s.type_id, add_exception.origin, add_exception.tick, add_exception.sequence,
            add_exception.event, state, add_exception.message, coalesce(add_exception.detail, ''),
            coalesce(add_exception.context, ''), add_exception.attempts
        FROM smile.subscription AS s WHERE s.id = add_exception.subscription;
    END IF;
END $$;
