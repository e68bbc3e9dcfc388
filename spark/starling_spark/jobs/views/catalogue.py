"""Pure core: the defined views, one for each file in `defined`."""

import importlib
import pkgutil

from starling_spark.jobs.views import defined
from starling_spark.jobs.views.view import View


def views() -> tuple[View, ...]:
    """Return the views, ordered by name. Raises: ValueError for a duplicate name."""
    modules = [importlib.import_module(f"{defined.__name__}.{found.name}") for found in pkgutil.iter_modules(defined.__path__)]
    by_name: dict[str, View] = {}
    for module in modules:
        view: View = module.VIEW
        if view.name in by_name:
            raise ValueError(f"two views are called {view.name}")
        by_name[view.name] = view
    return tuple(by_name[name] for name in sorted(by_name))
