"""`pyflink.common.typeinfo`'s names that varve has."""

from varve.changelog.types.contract import TypeInformation
from varve.changelog.types.factory import Types

__all__ = [
    "TypeInformation",
    "Types",
]
