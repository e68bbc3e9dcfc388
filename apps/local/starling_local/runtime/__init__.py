"""The JVM programs and libraries of the embedded stack, fetched once and verified."""

from starling_local.runtime.bundles import BUNDLES, Bundle
from starling_local.runtime.fetching import FetchError, fetch, runtime_jars

__all__ = ["BUNDLES", "Bundle", "FetchError", "fetch", "runtime_jars"]
