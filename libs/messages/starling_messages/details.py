"""Pure core: the details of outcomes that have a meaning for more than people."""

from typing import Final

MACHINE: Final = "machine"
"""A program caused the outcome, such as a scanner of links. Reports do not count it."""
