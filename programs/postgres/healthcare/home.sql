-- Home care: nurses publish what they observe.
CREATE EVENT TYPE Observation AS (prescription bigint NOT NULL, observed text NOT NULL);
ADVERTISE Observation;

CREATE LINK hospital TO '127.0.0.1' 7461 USING home 'TOKEN';
