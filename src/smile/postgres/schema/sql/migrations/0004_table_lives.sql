-- From which tick on the stream of a table has its contents. NULL: not yet, and the stream may still have rows of an earlier
-- table; the greatest tick: not yet, but these are removed. See capture/table_lives.py.

ALTER TABLE smile.event_type ADD life_tick bigint;
UPDATE smile.event_type SET life_tick = -1 WHERE source_table IS NOT NULL;
