-- After an upgrade: the functions and views of what exists are written again, and keep their owners and privileges.

CREATE OR REPLACE FUNCTION smile.define_again() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM smile.define_row_function(t.id), smile.define_views(t.id) FROM smile.event_type AS t WHERE t.dropped_xid IS NULL;
    PERFORM smile.define_publish(t.id) FROM smile.event_type AS t WHERE t.dropped_xid IS NULL AND t.source_table IS NULL;
    PERFORM smile.define_capture(t.id) FROM smile.event_type AS t JOIN pg_class AS c ON c.oid = t.source_table
    WHERE t.dropped_xid IS NULL;
    PERFORM smile.define_call(s) FROM smile.subscription AS s WHERE s.dropped_xid IS NULL;
    PERFORM smile.define_rule(r) FROM smile.rule AS r JOIN pg_class AS c ON c.oid = r.source_table;
END $$;

-- What would be lost if the schema was removed now; no rows if nothing.
CREATE OR REPLACE FUNCTION smile.undelivered() RETURNS TABLE (queue text, events bigint)
LANGUAGE sql STABLE AS $$
    SELECT * FROM (
        SELECT 'in', count(*) FROM smile.in_queue WHERE NOT pg_visible_in_snapshot(xid, smile.captured_snapshot())
        UNION ALL SELECT 'in, non-guaranteed', count(*) FROM smile.in_queue_unlogged WHERE NOT is_taken
        UNION ALL SELECT 'out', count(*) FROM smile.pending_delivery
        UNION ALL SELECT 'exception', count(*) FROM smile.exception_queue WHERE resolution IS NULL) AS queues(queue, events)
    WHERE events > 0
$$;
