"""Edge: `python -m starling_local.stack DATA_DIR` is the supervisor process that `starling up` starts."""

import sys
from pathlib import Path

from starling_local.instance import Instance
from starling_local.java import find_java
from starling_local.stack.supervision.process import end_with_parent
from starling_local.stack.supervision.supervisor import AlreadyRunningError, Supervisor
from starling_local.stack.wiring import runnable_parts


def main() -> int:
    """Run the supervisor until TERM or INT; with `--with-parent` also until its parent process ends. Return the exit code."""
    instance = Instance(Path(sys.argv[1]))
    if "--with-parent" in sys.argv:
        end_with_parent()
    java = find_java()
    try:
        Supervisor(instance, lambda options: runnable_parts(instance.data_dir, options, java)).run()
    except AlreadyRunningError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
