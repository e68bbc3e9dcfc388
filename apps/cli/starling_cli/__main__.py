"""Edge: `python -m starling_cli` is the `starling` command."""

from starling_cli.app import main

main()
