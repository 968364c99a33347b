"""`make bench` runs all benchmarks. `make bench PARTS=spark` runs some; the results of the others stay as they were."""

import sys

from bench import (
    closed_loop,
    compile,
    engine,
    fanout,
    log,
    network,
    nexmark,
    peer_comparison,
    postgres,
    publishing,
    registry,
    spark,
)
from bench.report import Report

PARTS = {
    "compile": compile.run,
    "engine": engine.run,
    "nexmark": nexmark.run,
    "spark": spark.run,
    "log": log.run,
    "publishing": publishing.run,
    "fanout": fanout.run,
    "floor": closed_loop.run,
    "network": network.run,
    "postgres": postgres.run,
    "registry": registry.run,
    "peers": peer_comparison.run,
}

if __name__ == "__main__":
    report = Report()
    for name in sys.argv[1:] or PARTS:
        PARTS[name](report)
        report.write()
