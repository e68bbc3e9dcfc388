"""Edge: `python -m starling_local.runtime` fetches every missing bundle; prints nothing if none is missing."""

import sys

from starling_local.runtime.bundles import BUNDLES
from starling_local.runtime.fetching import FetchError, default_runtime_dir, fetch


def main() -> int:
    """Fetch every missing bundle that is not fetched on demand; return the exit code."""
    try:
        for bundle in (one for one in BUNDLES.values() if not one.on_demand):
            fetch(bundle, default_runtime_dir(), lambda line: print(f"setup: {line} ...", flush=True))  # noqa: T201 - for the terminal
    except FetchError as error:
        sys.stderr.write(f"setup: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
