"""`pyflink.util.java_utils`' names, which say when they are used that there is no Java object of Flink's."""

from typing import Any

from varvite.spark_integration.options.absent import NO_FLINK, absent

__all__ = [
    "add_jars_to_context_class_loader",
    "get_field_value",
    "get_j_env_configuration",
    "invoke_method",
    "is_instance_of",
    "load_java_class",
    "to_jarray",
]

add_jars_to_context_class_loader: Any = absent("add_jars_to_context_class_loader", NO_FLINK)
get_field_value: Any = absent("get_field_value", NO_FLINK)
get_j_env_configuration: Any = absent("get_j_env_configuration", NO_FLINK)
invoke_method: Any = absent("invoke_method", NO_FLINK)
is_instance_of: Any = absent("is_instance_of", NO_FLINK)
load_java_class: Any = absent("load_java_class", NO_FLINK)
to_jarray: Any = absent("to_jarray", NO_FLINK)
