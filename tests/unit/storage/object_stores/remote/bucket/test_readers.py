"""Google's and Azure's answers that their servers for tests do not give, in the form of their documentation.

The requests themselves are tested against servers (tests/integration/storage/test_bucket_settings.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from varvite.storage.object_stores.remote.bucket.readers import _azure_lock, _hdfs_quota, _read_gcs, _s3_lock, _s3_rules
from varvite.storage.object_stores.remote.bucket.settings import Action, BucketSettings


def read(**answer: Any) -> BucketSettings:
    return _read_gcs(SimpleNamespace(call=lambda *_, **__: answer), "bucket", "state/")


def test_a_bucket_of_google_with_everything() -> None:
    found = read(
        location="EUROPE-WEST1",
        versioning={"enabled": True},
        softDeletePolicy={"retentionDurationSeconds": "604800"},
        retentionPolicy={"retentionPeriod": "86400"},
        hierarchicalNamespace={"enabled": True},
    )
    assert (found.region, found.is_versioned, found.soft_delete_days, found.is_hierarchical) == (
        "EUROPE-WEST1", True, 7.0, True,
    )  # fmt: skip
    assert found.lock == "a retention policy keeps every object for 1 days"
    assert found.lock_refuses_deletes


def test_a_bucket_of_google_with_nothing() -> None:
    found = read(location="US")
    assert (found.is_versioned, found.soft_delete_days, found.lock, found.rules) == (False, 0.0, "", ())
    assert read(defaultEventBasedHold=True).lock == "every new object is held until an event (default event-based hold)"


@pytest.mark.parametrize(
    ("action", "condition", "expected"),
    [
        ({"type": "Delete"}, {"age": 30}, (Action.DELETE, ("",), " after 30 days")),
        ({"type": "Delete"}, {"age": 3, "isLive": False}, (Action.DELETE_OLD_VERSIONS, ("",), " after 3 days")),
        ({"type": "Delete"}, {"numNewerVersions": 2}, (Action.DELETE_OLD_VERSIONS, ("",), "")),
        (
            {"type": "Delete"},
            {"createdBefore": "2026-01-01", "matchesPrefix": ["a/", "b/"]},
            (Action.DELETE, ("a/", "b/"), " that are older than 2026-01-01"),
        ),
        ({"type": "Delete"}, {"daysSinceCustomTime": 1}, None),
        ({"type": "SetStorageClass", "storageClass": "ARCHIVE"}, {"age": 1}, (Action.COOL, ("",), " after 1 days")),
        ({"type": "SetStorageClass", "storageClass": "STANDARD"}, {"age": 1}, None),
        ({"type": "AbortIncompleteMultipartUpload"}, {"age": 1}, None),
    ],
)
def test_rules_of_google(action: dict[str, str], condition: dict[str, Any], expected: Any) -> None:
    rules = read(lifecycle={"rule": [{"action": action, "condition": condition}]}).rules or ()
    assert [(rule.action, rule.prefixes, rule.after) for rule in rules] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"Filter": {}, "Expiration": {"Days": 1}}, [(Action.DELETE, ("",))]),
        ({"Prefix": "a/", "Expiration": {"Days": 1}}, [(Action.DELETE, ("a/",))]),
        ({"Filter": {"Prefix": "a/"}, "Expiration": {"Date": "2027-01-01"}}, [(Action.DELETE, ("a/",))]),
        ({"Filter": {"And": {"Prefix": "a/", "ObjectSizeGreaterThan": 1}}, "Expiration": {"Days": 1}},
         [(Action.DELETE, ("a/",))]),
        ({"Filter": {"Tag": {"Key": "k", "Value": "v"}}, "Expiration": {"Days": 1}}, []),
        ({"Filter": {"And": {"Tags": [{"Key": "k", "Value": "v"}]}}, "Expiration": {"Days": 1}}, []),
        ({"Filter": {}, "Expiration": {"ExpiredObjectDeleteMarker": True}}, []),
        ({"Filter": {}, "Transitions": [{"Days": 1, "StorageClass": "DEEP_ARCHIVE"}]}, [(Action.ARCHIVE, ("",))]),
        ({"Filter": {}, "Transitions": [{"Days": 1, "StorageClass": "STANDARD_IA"}]}, [(Action.COOL, ("",))]),
        ({"Filter": {}, "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}, [(Action.DELETE_OLD_VERSIONS, ("",))]),
        ({"Filter": {}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}, [(Action.ABORT_UPLOADS, ("",))]),
    ],
)  # fmt: skip
def test_rules_of_s3(rule: dict[str, Any], expected: list[Any]) -> None:
    assert [(r.action, r.prefixes) for r in _s3_rules([{**rule, "Status": "Enabled"}])] == expected
    assert [*_s3_rules([{**rule, "Status": "Disabled"}])] == []


def test_locks_of_s3_and_azure() -> None:
    retention = {"Mode": "COMPLIANCE", "Years": 2}
    assert _s3_lock({"ObjectLockConfiguration": {"Rule": {"DefaultRetention": retention}}}) == (
        "object lock keeps every new object for 2 years"
    )
    assert _s3_lock({"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}}) == ""
    assert _azure_lock({"has_legal_hold": True}) == "the container has a legal hold"
    assert _azure_lock({"has_immutability_policy": True}) == "the container has an immutability policy"
    assert _azure_lock({"has_immutability_policy": False}) == ""


def test_quotas_of_hdfs() -> None:
    counts = {"file_count": 3, "directory_count": 2, "space_consumed": 30}
    assert _hdfs_quota(SimpleNamespace(**counts, quota=-1, space_quota=-1)) == ""
    assert _hdfs_quota(SimpleNamespace(**counts, quota=10, space_quota=90)) == (
        "the quota is used up to 5 of 10 names and 30 of 90 bytes, copies included"
    )
