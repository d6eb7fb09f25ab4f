"""The meaning of a bucket's settings for a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from varvite.storage.object_stores.remote.bucket.remarks import Level, remarks_on
from varvite.storage.object_stores.remote.bucket.settings import Action, BucketSettings, Rule, Unread

PLAIN = BucketSettings(
    "S3", "bucket", "state/job/", "eu-central-1", is_versioned=False, soft_delete_days=0, lock="", rules=()
)


def grave(settings: BucketSettings) -> list[tuple[Level, str]]:
    return [(level, text) for level, text in remarks_on(settings) if level is not Level.FACT]


def test_a_plain_bucket_has_facts_only() -> None:
    assert remarks_on(PLAIN) == [
        (Level.FACT, "S3, bucket, region eu-central-1"),
        (Level.FACT, "versioning is off"),
    ]


@pytest.mark.parametrize(
    ("prefix", "concerns"),
    [("", True), ("state/", True), ("state/job/", True), ("state/job/chain/", True), ("sta", True),
     ("state/job2/", False), ("logs/", False)],
)  # fmt: skip
@pytest.mark.parametrize("action", [Action.DELETE, Action.ARCHIVE])
def test_a_rule_that_takes_objects_away_is_a_danger_where_it_applies(
    prefix: str, concerns: bool, action: Action
) -> None:
    rule = Rule("tidy", action, ("else/", prefix), " after 30 days")
    (*remarks,) = grave(replace(PLAIN, rules=(rule,)))
    assert [level for level, _ in remarks] == [Level.DANGER] * concerns
    for _, text in remarks:
        assert "'tidy'" in text
        assert "bucket/state/job/" in text
        assert "after 30 days" in text


@pytest.mark.parametrize(
    ("changes", "level", "text"),
    [
        ({"rules": (Rule("", Action.COOL),)}, Level.COST, "a lifecycle rule moves objects"),
        ({"is_versioned": True}, Level.COST, "billed for ever; switch versioning off"),
        ({"soft_delete_days": 7.0}, Level.COST, "billed for 7 days"),
        ({"lock": "kept"}, Level.COST, "kept: what varvite deletes is kept and billed"),
        ({"lock": "kept", "lock_refuses_deletes": True}, Level.DANGER, "cannot delete what it has folded"),
        ({"bills_unfinished_uploads": True}, Level.COST, "no rule aborts unfinished uploads"),
    ],
)
def test_each_setting_that_matters_has_its_remark(changes: dict[str, object], level: Level, text: str) -> None:
    ((found, remark),) = grave(replace(PLAIN, **changes))
    assert found is level
    assert text in remark


@pytest.mark.parametrize(
    "changes",
    [
        {"is_versioned": True, "rules": (Rule("", Action.DELETE_OLD_VERSIONS),)},
        {"bills_unfinished_uploads": True, "rules": (Rule("", Action.ABORT_UPLOADS, ("state/",)),)},
        {"bills_unfinished_uploads": True, "rules": None},
        {"is_versioned": None, "soft_delete_days": None, "lock": None, "rules": None},
    ],
)
def test_what_a_rule_cures_and_what_is_not_known_has_no_remark(changes: dict[str, object]) -> None:
    assert grave(replace(PLAIN, **changes)) == []


def test_a_rule_for_a_part_of_the_job_cures_nothing() -> None:
    rule = Rule("", Action.DELETE_OLD_VERSIONS, ("state/job/chain/",))
    assert [level for level, _ in grave(replace(PLAIN, is_versioned=True, rules=(rule,)))] == [Level.COST]


def test_facts_name_what_could_not_be_read_and_the_permission() -> None:
    unread = Unread("object lock", "AccessDenied", "s3:GetBucketObjectLockConfiguration")
    facts = [text for _, text in remarks_on(replace(PLAIN, unread=(unread,), writes_per_name_s=1.0, quota="used"))]
    assert facts[2:] == [
        "it takes 1 write a second of the same name; varvite stays below that",
        "used",
        "object lock: not known (AccessDenied); s3:GetBucketObjectLockConfiguration shows it",
    ]
