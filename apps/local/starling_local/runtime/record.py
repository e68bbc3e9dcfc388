"""Edge: `python -m starling_local.runtime.record NAME` pins the checksums of a bundle after a change of its pom.

Fetches without verification and writes the bundle's SHA256SUMS. Review the difference before committing it.
"""

import sys
import tempfile
from pathlib import Path

from starling_local.runtime.bundles import BUNDLES
from starling_local.runtime.fetching import copy_with_maven, digests


def main(names: list[str]) -> int:
    """Pin the named bundles, or all bundles."""
    for name in names or sorted(BUNDLES):
        bundle = BUNDLES[name]
        with tempfile.TemporaryDirectory() as scratch:
            copy_with_maven(bundle, Path(scratch) / "files")
            found = digests(Path(scratch) / "files")
        bundle.checksum_file.write_text("".join(f"{digest}  {file}\n" for file, digest in sorted(found.items())))
        sys.stdout.write(f"{name}: {len(found)} files\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
