"""Two processes of the job `profiles` with one checkpoint, as after a takeover: no profile has a value twice or an outdated one."""

import pytest

from tests.integration.spark.instance import Instance
from tests.integration.spark.two_drivers import assert_that_a_suspended_driver_changes_no_profile


@pytest.mark.long
def test_a_suspended_driver_that_goes_on_changes_no_profile(instance: Instance) -> None:
    assert_that_a_suspended_driver_changes_no_profile(instance)
