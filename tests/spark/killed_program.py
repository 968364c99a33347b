"""A driver of its own process: `killed_program.py FOLDER` runs a program over the files of FOLDER/in, in a session that
SMILE has not started, and writes the rows that it has in the end to FOLDER/rows.json."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import smile.spark

PROGRAM = """
CREATE STREAM Bids (bidid: time -> issue: string, price: int);
CREATE VIEW Totals AS SELECT issue, SUM(price) AS total, COUNT(*) AS bids FROM Bids GROUP BY issue;
SUBSCRIBE Totals;
"""


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    files = spark.readStream.schema("issue string, price long").option("maxFilesPerTrigger", "1")
    frame = files.json(str(folder / "in")).repartition(2)
    with smile.spark.run(spark, PROGRAM, {"Bids": frame}, folder / "checkpoint", available_now=True) as running:
        sys.stdout.write("running\n")
        sys.stdout.flush()
        assert running.wait(300)
        # Another session finds the data source without registration.
        rows = spark.newSession().read.format("smile").options(url=running.url, view="Totals").load()
        (folder / "rows.json").write_text(json.dumps({r.issue: [int(r.total), r.bids] for r in rows.collect()}))
    spark.stop()


if __name__ == "__main__":
    main()
