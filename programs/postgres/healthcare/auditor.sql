-- The auditor: a persistent record of prescriptions of controlled drugs, without the patients.
CREATE EVENT TYPE Prescription AS (number bigint NOT NULL, drug text NOT NULL, dosage text NOT NULL, prescriber text NOT NULL);
CREATE TABLE controlled_drugs (number bigint, drug text, dosage text, prescriber text, recorded_at timestamptz DEFAULT now());
CREATE FUNCTION record_prescription(bigint, text, text, text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO controlled_drugs (number, drug, dosage, prescriber) VALUES ($1, $2, $3, $4)
$$;
CREATE GLOBAL SUBSCRIPTION Record ON Prescription
    EXECUTE record_prescription(number, drug, dosage, prescriber);

CREATE LINK hospital TO '127.0.0.1' 7461 USING auditor 'TOKEN';
