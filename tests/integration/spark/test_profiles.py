"""The job `profiles` on a real broker and registry, as a process."""

from tests.integration.spark.instance import Instance

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
SPENT_30D = {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"}
ORDERS = {"event": "Order Completed"}


def test_values_follow_events_and_the_clock(instance: Instance) -> None:
    instance.define("spent", SPENT_30D)
    instance.define("orders", ORDERS)
    instance.event("ann", START_MS, revenue=10)
    instance.event("bob", START_MS + DAY_MS, revenue=5)
    instance.start()
    instance.settle()
    assert instance.values() == {("ann", "spent"): 10, ("ann", "orders"): 1, ("bob", "spent"): 5, ("bob", "orders"): 1}
    instance.event("ann", START_MS + 2 * DAY_MS, revenue=2.5)
    instance.settle()
    instance.advance(START_MS + 31 * DAY_MS)
    instance.settle()
    assert instance.values()[("ann", "spent")] == 2.5
