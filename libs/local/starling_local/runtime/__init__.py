"""The JVM programs and libraries the embedded stack runs on, fetched once and checked."""

from starling_local.runtime.bundles import BUNDLES, Bundle
from starling_local.runtime.fetching import FetchError, fetch, runtime_jars

__all__ = ["BUNDLES", "Bundle", "FetchError", "fetch", "runtime_jars"]
