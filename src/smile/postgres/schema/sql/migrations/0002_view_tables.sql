-- How current the table of a view is: the horizons of the view that it equals, and where the service goes on.

ALTER TABLE smile.view_table
    ADD resume text,
    ADD horizons jsonb,
    ADD refresh_time timestamptz;
