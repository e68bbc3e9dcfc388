"""Edge: the daemon from which Spark forks its Python workers, with a low cost for each task.

A job has up to four workers for each concurrent task, and a micro-batch of half a second runs as many tasks. With Spark's
daemon each worker imports the libraries, which takes a second of CPU time, and each task takes 0.2 s before it begins: half for
garbage collection among the objects of all libraries, half for reading the directories of archives again, Spark's largest
jar among them.
"""

import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from starling_spark.session.worker_files import shared_files

_PRELOADED: Final = ("pandas", "pyarrow", "starling_spark.kafka.decoding", "starling_spark.jobs.profiles.query.transform")
"""The modules that take long to import; the workers import the other modules of a job."""


def without_archives(search: list[str]) -> list[str]:
    """Return the search path without the archives of an installed Spark; its modules are present as files too."""
    homes = [Path(place, "pyspark") for place in search if Path(place, "pyspark", "__init__.py").is_file()]
    return [place for place in search if not (Path(place).is_file() and any(home in Path(place).parents for home in homes))]


def main() -> None:
    """Run `pyspark.daemon`; Spark calls it as `python -m starling_spark.session.worker_daemon pyspark.worker`."""
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    daemon = import_module("pyspark.daemon")
    for name in _PRELOADED:
        import_module(name)
    with shared_files():
        gc.collect()
        gc.freeze()
        daemon.manager()


if __name__ == "__main__":
    main()
