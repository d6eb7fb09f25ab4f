"""`pyflink.common.typeinfo`'s names that varve has."""

from varve.changelog.type_information import TypeInformation
from varve.changelog.types import Types

__all__ = [
    "TypeInformation",
    "Types",
]
