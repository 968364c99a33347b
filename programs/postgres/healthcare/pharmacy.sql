-- The pharmacy: what the hospital releases of a prescription.
CREATE EVENT TYPE Prescription AS (
    number bigint NOT NULL, birth_year integer NOT NULL, drug text NOT NULL, dosage text NOT NULL, prescriber text NOT NULL
);
CREATE TABLE dispensary (number bigint, birth_year integer, drug text, dosage text, prescriber text);
CREATE FUNCTION prepare_drug(bigint, integer, text, text, text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO dispensary VALUES ($1, $2, $3, $4, $5)
$$;
CREATE GLOBAL SUBSCRIPTION Dispense ON Prescription
    EXECUTE prepare_drug(number, birth_year, drug, dosage, prescriber);

CREATE LINK hospital TO '127.0.0.1' 7461 USING pharmacy 'TOKEN';
