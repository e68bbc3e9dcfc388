"""The demo: real purchases from the first event to the last webhook, compared with a pandas computation."""

from starling_local.demo.run import run

__all__ = ["run"]
