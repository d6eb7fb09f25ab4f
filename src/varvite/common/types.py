"""`pyflink.common.types`' names that varvite has."""

from varvite.changelog.row import Row

__all__ = [
    "Row",
]
