"""The reference evaluator: computes every view of a program anew from all events. It is slow and simple, and serves as
the oracle of the tests."""
