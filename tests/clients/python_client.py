"""Sends items with one of the published Python clients: `python python_client.py CLIENT URL WRITE_KEY ITEMS`."""

import sys

from rudderstack.analytics.client import Client as RudderClient
from segment.analytics.client import Client as SegmentClient

CLIENTS = {"segment-analytics-python": SegmentClient, "rudder-sdk-python": RudderClient}


def main() -> None:
    """Send the items, then wait for the end of the standard input."""
    name, url, write_key, items = sys.argv[1:]
    client = CLIENTS[name](write_key, host=url, upload_size=20, timeout=30)
    client.identify("u-1", {"plan": "pro"})
    client.page("u-1", "Shop", "Cart")
    client.screen("u-1", "App", "Home")
    client.group("u-1", "g-1", {"plan": "pro"})
    client.alias("anon-1", "u-1")
    for number in range(5, int(items)):
        client.track("u-1", "Step", {"n": number})
    client.flush()
    client.join()
    sys.stdin.read()


if __name__ == "__main__":
    main()
