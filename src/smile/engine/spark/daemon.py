"""The process that Spark's Python workers are forked from: it has loaded what they need, so that each is ready at once.

A worker is lost with every task that fails in it, and the next one begins without the second that Arrow takes to load.
"""

import gc

from pyspark.daemon import manager

from smile.engine.spark.source import block_pandas

if __name__ == "__main__":
    block_pandas()
    from smile.engine.spark import task

    assert task.MESSAGE_SCHEMA
    # What is loaded stays for good: collecting garbage after each task, as Spark does, need not look at it.
    gc.collect()
    gc.freeze()
    manager()
