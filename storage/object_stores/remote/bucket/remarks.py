"""The meaning of a bucket's settings for the jobs whose state is in it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from varvite.storage.object_stores.remote.bucket.settings import Action

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.storage.object_stores.remote.bucket.settings import BucketSettings, Rule


class Level(Enum):
    """The weight of a remark."""

    DANGER = "danger"
    """A job would lose its state, or fail."""
    COST = "cost"
    """Objects are kept and billed that varvite has deleted, or does not need."""
    FACT = "fact"


class Remark(NamedTuple):
    """A statement on a bucket."""

    level: Level
    text: str


def remarks_on(settings: BucketSettings) -> list[Remark]:
    """Everything that is worth saying on a bucket, the worst first."""
    remarks = [*_on_rules(settings), *_on_deleted_objects(settings), *_on_facts(settings)]
    return sorted(remarks, key=lambda remark: [*Level].index(remark.level))


def _on_rules(settings: BucketSettings) -> Iterator[Remark]:
    place = f"{settings.bucket}/{settings.prefix}"
    for rule in settings.rules or ():
        if not rule.concerns(settings.prefix):
            continue
        if rule.action is Action.DELETE:
            yield Remark(
                Level.DANGER,
                f"{_named(rule)} deletes objects below {place}{rule.after}, and with them the state of jobs; exclude "
                "this place from the rule, or take another bucket",
            )
        elif rule.action is Action.ARCHIVE:
            yield Remark(
                Level.DANGER,
                f"{_named(rule)} moves objects below {place} to an archive{rule.after}, where no job can read them; "
                "exclude this place from the rule, or take another bucket",
            )
        elif rule.action is Action.COOL:
            yield Remark(
                Level.COST,
                f"{_named(rule)} moves objects below {place} to a colder class{rule.after}, which bills reads and a "
                "minimum time of storage; exclude this place from the rule",
            )


def _on_deleted_objects(settings: BucketSettings) -> Iterator[Remark]:
    if settings.lock:
        effect = (
            (Level.DANGER, "the materializer cannot delete what it has folded, and pins cannot be renewed")
            if settings.lock_refuses_deletes
            else (Level.COST, "what varvite deletes is kept and billed until then")
        )
        yield Remark(effect[0], f"{settings.lock}: {effect[1]}; take a bucket without it")
    if settings.is_versioned and not _has(settings, Action.DELETE_OLD_VERSIONS):
        yield Remark(
            Level.COST,
            "the bucket keeps old versions of objects: what varvite deletes is billed for ever; switch versioning off, "
            "or add a rule that deletes noncurrent versions after a day",
        )
    if settings.soft_delete_days:
        yield Remark(
            Level.COST,
            f"deleted objects are kept and billed for {settings.soft_delete_days:g} days (soft delete); switch it off",
        )
    if settings.bills_unfinished_uploads and settings.rules is not None and not _has(settings, Action.ABORT_UPLOADS):
        yield Remark(
            Level.COST,
            "no rule aborts unfinished uploads: parts of a file whose upload was killed are billed for ever; add one, "
            "with a day or more",
        )


def _on_facts(settings: BucketSettings) -> Iterator[Remark]:
    region = f", region {settings.region}" if settings.region else ""
    kind = ", hierarchical namespace" if settings.is_hierarchical else ""
    yield Remark(Level.FACT, f"{settings.storage}, {settings.bucket}{region}{kind}")
    if settings.is_versioned is not None:
        yield Remark(Level.FACT, f"versioning is {'on' if settings.is_versioned else 'off'}")
    if settings.writes_per_name_s is not None:
        yield Remark(
            Level.FACT,
            f"it takes {settings.writes_per_name_s:g} write a second of the same name; varvite stays below that",
        )
    if settings.quota:
        yield Remark(Level.FACT, settings.quota)
    for unread in settings.unread:
        yield Remark(Level.FACT, f"{unread.setting}: not known ({unread.reason}); {unread.permission} shows it")


def _has(settings: BucketSettings, action: Action) -> bool:
    return any(rule.action is action and rule.covers(settings.prefix) for rule in settings.rules or ())


def _named(rule: Rule) -> str:
    return f"the lifecycle rule {rule.name!r}" if rule.name else "a lifecycle rule"
