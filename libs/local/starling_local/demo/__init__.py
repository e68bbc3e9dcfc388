"""The main job on real data, from the first event to the last delivered change, checked against pandas."""

from starling_local.demo.run import run

__all__ = ["run"]
