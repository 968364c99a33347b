-- The catalogue, for everybody. Passwords are not part of it.

CREATE OR REPLACE VIEW smile.event_types AS
    SELECT t.id, t.name, t.owner, t.source_table::regclass AS source_table, (
        SELECT jsonb_agg(jsonb_build_object('name', c.name, 'type', c.smile_type, 'postgres_type', c.postgres_type,
            'not_null', c.is_not_null) ORDER BY c.position)
        FROM smile.event_column AS c WHERE c.type_id = t.id) AS columns
    FROM smile.event_type AS t WHERE t.dropped_xid IS NULL;

CREATE OR REPLACE VIEW smile.advertisements AS
    SELECT a.id, t.name AS event_type, a.owner, a.condition
    FROM smile.advertisement AS a JOIN smile.event_type AS t ON t.id = a.type_id
    WHERE a.dropped_xid IS NULL AND t.source_table IS NULL;  -- streams of tables are not advertised to others

CREATE OR REPLACE VIEW smile.subscriptions AS
    SELECT s.id, s.name, t.name AS event_type, s.owner, s.scope, s.filter, s.filter_evaluation, s.function, s.arguments, s.priority
    FROM smile.subscription AS s JOIN smile.event_type AS t ON t.id = s.type_id WHERE s.dropped_xid IS NULL;

CREATE OR REPLACE VIEW smile.rules AS
    SELECT r.id, r.name, r.operation, r.source_table::regclass AS source_table, r.condition, t.name AS event_type, r.arguments,
        r.visibility, r.reliability, r.owner
    FROM smile.rule AS r JOIN smile.event_type AS t ON t.id = r.type_id
        JOIN pg_catalog.pg_class AS c ON c.oid = r.source_table;

CREATE OR REPLACE VIEW smile.links AS
    SELECT l.id, l.name, l.owner, l.address, l.port, l.username FROM smile.link AS l WHERE l.dropped_xid IS NULL;

CREATE OR REPLACE VIEW smile.queues AS
    SELECT lower(t.name) || '_' || q.kind AS name, t.name AS event_type, q.kind, q.is_auditable
    FROM smile.event_type AS t CROSS JOIN LATERAL (
        VALUES ('in', t.in_auditable), ('out', t.out_auditable), ('exception', t.exception_auditable)) AS q(kind, is_auditable)
    WHERE t.dropped_xid IS NULL;

CREATE OR REPLACE VIEW smile.view_tables AS
    SELECT v.id, v.table_name, v.view, v.with_knowledge, v.owner, v.horizons, v.refresh_time FROM smile.view_table AS v WHERE v.dropped_xid IS NULL;

CREATE OR REPLACE VIEW smile.privileges AS
    SELECT t.name AS event_type, 'PUBLISH' AS privilege, CASE a.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(a.grantee) END AS role
    FROM smile.event_type AS t
        JOIN pg_catalog.pg_proc AS p ON p.pronamespace = 'smile'::regnamespace AND p.proname = 'publish_' || lower(t.name)
        CROSS JOIN LATERAL aclexplode(p.proacl) AS a
    WHERE t.dropped_xid IS NULL AND a.privilege_type = 'EXECUTE'
    UNION ALL
    SELECT t.name, 'SUBSCRIBE', CASE a.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(a.grantee) END
    FROM smile.event_type AS t
        JOIN pg_catalog.pg_class AS c ON c.relnamespace = 'smile'::regnamespace AND c.relname = lower(t.name) || '_in'
        CROSS JOIN LATERAL aclexplode(c.relacl) AS a
    WHERE t.dropped_xid IS NULL AND a.privilege_type = 'SELECT';
