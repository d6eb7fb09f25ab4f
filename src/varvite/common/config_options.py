"""`pyflink.common.config_options`' names."""

from varvite.spark_integration.operators.windows.trigger import T
from varvite.spark_integration.options.configuration import ConfigOption, ConfigOptions

__all__ = ["ConfigOption", "ConfigOptions", "T"]
