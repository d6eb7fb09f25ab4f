"""`pyflink.common.types`' names that varve has."""

from varve.changelog.row import Row

__all__ = [
    "Row",
]
