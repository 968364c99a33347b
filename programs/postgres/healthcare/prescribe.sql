BEGIN;
INSERT INTO prescriptions VALUES
    (1, 'Ada Smith', 1950, 'a cough for three weeks', 'amoxicillin', '500 mg three times a day', false, 'Dr. Brown'),
    (2, 'Bob Jones', 1981, 'pain after surgery', 'morphine', '10 mg every four hours', true, 'Dr. Green');
COMMIT;

-- A prescription that is rolled back was never made.
BEGIN;
INSERT INTO prescriptions VALUES
    (3, 'Bob Jones', 1981, 'pain after surgery', 'morphine', '100 mg every four hours', true, 'Dr. Green');
ROLLBACK;
