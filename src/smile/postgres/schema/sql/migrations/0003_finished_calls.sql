-- What numbers the commands of a transaction: one row for each subscription. See smile.check_finished.

CREATE UNLOGGED TABLE smile.command_probe (
    subscription_id integer PRIMARY KEY
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
