"""Edge: `python -m starling_local` is the `starling` command."""

from starling_local.cli import main

main()
