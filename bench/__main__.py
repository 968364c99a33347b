"""`make bench`: all benchmarks, in one run."""

from bench import compile, engine
from bench.report import Report

if __name__ == "__main__":
    report = Report()
    compile.run(report)
    engine.run(report)
    report.write()
