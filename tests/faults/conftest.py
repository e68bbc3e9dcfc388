"""The invariants use the same topics and workers as the stream tests."""

from tests.integration.stream.conftest import rig

__all__ = ["rig"]
