"""`make bench`: all benchmarks, in one run; `make bench PARTS=spark` only some, the others stay as they were."""

import sys

from bench import beside, compile, engine, log, spark
from bench.report import Report

if __name__ == "__main__":
    parts = {"compile": compile.run, "engine": engine.run, "spark": spark.run, "log": log.run, "peers": beside.run}
    report = Report()
    for name in sys.argv[1:] or parts:
        parts[name](report)
        report.write()
