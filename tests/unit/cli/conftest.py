"""Each test of the command line begins without the installation that an earlier one named by `--url`."""

import pytest

from starling_cli.commands.common import REMOTE


@pytest.fixture(autouse=True)
def _no_installation() -> None:
    REMOTE.set(None)
