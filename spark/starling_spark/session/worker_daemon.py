"""Edge: what Spark forks its Python workers from: its own daemon, made so that a task costs little beside its work.

A job has up to four workers for each task that runs at once, and a micro-batch of half a second is as many tasks. With Spark's own
daemon each worker reads the libraries for itself, a second of processor, and each task costs 0.2 s of it before it begins: half
for garbage looked for among the objects of all libraries, half for the contents of archives, which are read anew, Spark's greatest
jar among them, as if somebody changed them.
"""

import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

_READ_BEFORE: Final = ("pandas", "pyarrow", "starling_spark.kafka.decoding", "starling_spark.jobs.profiles.transform")
"""Of Spark's own parts and of ours what takes long; a job's other modules are read in its workers."""


def without_archives(search: list[str]) -> list[str]:
    """The module search path without the archives of an installed Spark whose modules lie beside them as files."""
    homes = [Path(place, "pyspark") for place in search if Path(place, "pyspark", "__init__.py").is_file()]
    return [place for place in search if not (Path(place).is_file() and any(home in Path(place).parents for home in homes))]


def main() -> None:
    """As `pyspark.daemon`, and called as it is: `python -m starling_spark.session.worker_daemon pyspark.worker`."""
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    daemon = import_module("pyspark.daemon")
    for name in _READ_BEFORE:
        import_module(name)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
