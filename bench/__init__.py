"""Benchmarks: what `make bench` runs. Figures are of one run on one machine; compare within a run."""
