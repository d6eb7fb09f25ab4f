"""The settings of a bucket, in the same words for all storages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    """The effect of a lifecycle rule."""

    DELETE = "delete"
    DELETE_OLD_VERSIONS = "delete old versions"
    ABORT_UPLOADS = "abort unfinished uploads"
    ARCHIVE = "move to an archive that cannot be read at once"
    COOL = "move to a class with a minimum time of storage"


@dataclass(frozen=True)
class Rule:
    """A lifecycle rule that applies to objects as varvite writes them: without tags."""

    name: str
    action: Action
    prefixes: tuple[str, ...] = ("",)
    """It applies to objects whose names begin with one of them."""
    after: str = ""
    """The time that it waits, for people."""

    def concerns(self, prefix: str) -> bool:
        """True if it applies to some object below a prefix."""
        return any(prefix.startswith(first) or first.startswith(prefix) for first in self.prefixes)

    def covers(self, prefix: str) -> bool:
        """True if it applies to every object below a prefix."""
        return any(prefix.startswith(first) for first in self.prefixes)


@dataclass(frozen=True)
class Unread:
    """A setting that could not be read."""

    setting: str
    reason: str
    permission: str
    """The permission, or the command, by which it can be seen."""


@dataclass(frozen=True)
class BucketSettings:
    """Settings; None for those that the storage does not have, or that could not be read."""

    storage: str
    """The kind of storage, for people."""
    bucket: str
    prefix: str
    """The names of the objects in question begin with it."""
    region: str | None = None
    is_versioned: bool | None = None
    soft_delete_days: float | None = None
    """Days that deleted objects are kept; 0 if they are not."""
    lock: str | None = None
    """A retention after which alone objects can be deleted for good, for people; "" if there is none."""
    lock_refuses_deletes: bool = False
    """Deleting and replacing are errors while the lock holds; otherwise they add versions."""
    rules: tuple[Rule, ...] | None = None
    bills_unfinished_uploads: bool = False
    """Parts of an upload that nobody finishes stay until a rule removes them."""
    is_hierarchical: bool | None = None
    writes_per_name_s: float | None = None
    """Writes of the same name that the storage takes in a second."""
    quota: str | None = None
    """The use and the limit of a quota, for people."""
    unread: tuple[Unread, ...] = ()
