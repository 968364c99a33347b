"""`make bench`: all benchmarks, in one run."""

from bench import compile, engine, spark
from bench.report import Report

if __name__ == "__main__":
    report = Report()
    compile.run(report)
    engine.run(report)
    spark.run(report)
    report.write()
