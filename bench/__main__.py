"""`make bench` runs all benchmarks. `make bench PARTS=spark` runs some; the results of the others stay as they were."""

import sys

from bench import closed_loop, compile, engine, fanout, log, network, peer_comparison, publishing, spark
from bench.report import Report

PARTS = {
    "compile": compile.run,
    "engine": engine.run,
    "spark": spark.run,
    "log": log.run,
    "publishing": publishing.run,
    "fanout": fanout.run,
    "floor": closed_loop.run,
    "network": network.run,
    "peers": peer_comparison.run,
}

if __name__ == "__main__":
    report = Report()
    for name in sys.argv[1:] or PARTS:
        PARTS[name](report)
        report.write()
