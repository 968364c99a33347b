-- What everybody may do in the schema. Everything else is for the role that installed it.

GRANT USAGE ON SCHEMA smile TO PUBLIC;
GRANT INSERT, SELECT ON smile.command TO PUBLIC;
GRANT SELECT ON smile.event_types, smile.advertisements, smile.subscriptions, smile.rules, smile.links, smile.queues,
    smile.privileges, smile.view_tables TO PUBLIC;

DO $$
DECLARE
    public_names CONSTANT text[] := ARRAY[
        'fail', 'fail_expression', 'set_caller', 'create_event_type', 'table_columns', 'drop_event_type', 'alter_queue',
        'advertise', 'unadvertise', 'publish', 'immediate_way', 'slot_name', 'create_subscription', 'check_subscribe',
        'check_subscribe_as', 'check_call', 'check_expression', 'capture_filter_tables', 'filter_tables', 'drop_subscription', 'grant', 'revoke',
        'timestamp_from_text', 'date_from_text', 'interval_from_text', 'bytes_from_text', 'microseconds', 'create_rule',
        'drop_rule', 'create_link', 'drop_link', 'create_table_stream', 'drop_table_stream', 'create_view_table',
        'drop_view_table', 'retry_exception', 'drop_exception', 'skip_delivery', 'check_rule',
        'find_table', 'publishing_call', 'qualified_name', 'check_stream_table', 'installer', 'new_table_name'];
    f record;
BEGIN
    FOR f IN
        SELECT p.oid::regprocedure AS signature, p.proname = ANY (public_names) OR p.proname LIKE '%\_row' AS is_public
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'smile'::regnamespace
            AND p.proname NOT LIKE 'publish\_%' AND p.proname NOT LIKE 'call\_%'
            AND p.proname NOT LIKE 'rule\_%' AND p.proname NOT LIKE 'capture\_table\_%'
    LOOP
        EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', f.signature);
        IF f.is_public THEN
            EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO PUBLIC', f.signature);
        END IF;
    END LOOP;
END $$;
