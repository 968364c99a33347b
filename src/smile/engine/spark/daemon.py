"""The process that Spark forks its Python workers from. It imports all modules beforehand, so workers start quickly.

A failed task ends its worker. Thanks to the fork, the next worker does not need a second to import Arrow.
"""

import gc

from pyspark.daemon import manager

from smile.engine.spark.source import block_pandas
from smile.memory import limit_worker_memory

if __name__ == "__main__":
    limit_worker_memory()
    block_pandas()
    from smile.engine.spark import task

    assert task.MESSAGE_SCHEMA
    # Spark collects garbage after every task. Frozen objects are not traversed each time.
    gc.collect()
    gc.freeze()
    manager()
