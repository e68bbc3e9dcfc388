"""The services that the chart installs, without the scaler and the jobs of Spark."""

from typing import Final

from tools.chart_schema import MODELS

SERVICES: Final = sorted(MODELS.keys() - {"scaler", "profiles", "lake"})
"""The scaler has no connection to the broker; the drivers of the jobs connect to it in the JVM."""
