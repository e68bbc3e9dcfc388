"""`python benchmarks/common/many_views.py N`: the job `views` with N copies of its view."""

import sys
from dataclasses import replace

from starling_spark.jobs.views import wiring
from starling_spark.jobs.views.__main__ import main
from starling_spark.jobs.views.catalogue import views

if __name__ == "__main__":
    copies = int(sys.argv[1])
    [view] = views()
    vars(wiring)["views"] = lambda: tuple(replace(view, name=f"{view.name}_{number}") for number in range(copies))
    main()
