"""The services that the chart installs, without the scaler and the jobs of Spark."""

from typing import Final

from starling_spark.session.settings import SparkSettings
from tools.chart_schema import MODELS

SERVICES: Final = sorted(name for name, model in MODELS.items() if name != "scaler" and not issubclass(model, SparkSettings))
"""The scaler has no connection to the broker; the drivers of the jobs connect to it in the JVM."""
