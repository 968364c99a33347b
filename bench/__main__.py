"""`make bench`: all benchmarks, in one run."""

from bench import compile
from bench.report import Report

if __name__ == "__main__":
    report = Report()
    compile.run(report)
    report.write()
