"""The benchmarks that `make bench` runs. Figures are of one run on one machine: compare them only within a run."""
