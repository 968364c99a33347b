-- The hospital: doctors insert prescriptions, and each of them is an event.
CREATE TABLE prescriptions (
    number bigint PRIMARY KEY,
    patient text NOT NULL,
    birth_year integer NOT NULL,
    symptoms text NOT NULL,
    drug text NOT NULL,
    dosage text NOT NULL,
    controlled boolean NOT NULL,
    prescriber text NOT NULL
);

CREATE EVENT TYPE Prescription AS (
    number bigint NOT NULL, patient text NOT NULL, birth_year integer NOT NULL, symptoms text NOT NULL, drug text NOT NULL,
    dosage text NOT NULL, controlled boolean NOT NULL, prescriber text NOT NULL
);
ADVERTISE Prescription;
ALTER QUEUE Prescription_in SET AUDITABLE;

CREATE RULE Prescribed AS ON INSERT TO prescriptions
    PUBLISH DEFERRED GUARANTEED Prescription(
        NEW.number, NEW.patient, NEW.birth_year, NEW.symptoms, NEW.drug, NEW.dosage, NEW.controlled, NEW.prescriber
    );

-- Observations are published at home. The doctor who has prescribed the drug is informed.
CREATE EVENT TYPE Observation AS (prescription bigint NOT NULL, observed text NOT NULL);
CREATE TABLE notices (doctor text, prescription bigint, observed text);
CREATE FUNCTION inform_doctor(about bigint, observed text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO notices SELECT p.prescriber, p.number, $2 FROM prescriptions AS p WHERE p.number = $1
$$;
CREATE GLOBAL SUBSCRIPTION InformDoctor ON Observation
    WHERE prescription IN (SELECT number FROM prescriptions)
    EXECUTE inform_doctor(prescription, observed);
