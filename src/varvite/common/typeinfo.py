"""`pyflink.common.typeinfo`'s names that varvite has."""

from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types

__all__ = [
    "TypeInformation",
    "Types",
]
