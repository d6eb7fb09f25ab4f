"""The requests that read a bucket's settings.

A setting that cannot be read, mostly for want of rights, is reported as such: reading never fails a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from varvite.storage.object_stores.remote.bucket.client import bucket_client
from varvite.storage.object_stores.remote.bucket.settings import Action, BucketSettings, Rule, Unread
from varvite.storage.object_stores.remote.dialect import run_in
from varvite.storage.object_stores.remote.errors import failure
from varvite.storage.object_stores.remote.protocols import (
    AZURE_PROTOCOLS,
    GCS_PROTOCOLS,
    HDFS_PROTOCOLS,
    S3_PROTOCOLS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_Value = TypeVar("_Value")
_DAY_S: Final = 86_400
_REASON_LENGTH_MAX: Final = 100
_ABSENT: Final = frozenset({"NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError"})
"""Codes of S3: the bucket has no such setting."""
_S3_ARCHIVES: Final = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_GCS_OF_OLD_VERSIONS: Final = frozenset({"numNewerVersions", "daysSinceNoncurrentTime", "noncurrentTimeBefore"})
_GCS_OF_CUSTOM_TIME: Final = frozenset({"daysSinceCustomTime", "customTimeBefore"})
_GCS_WRITES_PER_NAME_S: Final = 1.0


class _Reading:
    """The reading of one setting after the other."""

    def __init__(self) -> None:
        self.unread: list[Unread] = []

    def read(self, setting: str, permission: str, request: Callable[[], _Value], absent: _Value) -> _Value | None:
        """The answer of a request, `absent` if there is no such setting, or None, noted, if it is not known."""
        try:
            return request()
        except Exception as error:
            facts = failure(error)
            if facts.code in _ABSENT:
                return absent
            if not facts.is_of_storage:
                raise
            reason = facts.code or facts.text.partition("\n")[0][:_REASON_LENGTH_MAX]
            self.unread.append(Unread(setting, reason, permission))
            return None


def read_settings(url: str, storage_options: Mapping[str, Any]) -> BucketSettings | None:
    """The settings of the bucket of a URL, as far as the rights go; None for a storage without such settings."""
    protocol = url.partition("://")[0]
    read = next((reader for protocols, reader in _READERS.items() if protocol in protocols), None)
    if read is None:
        return None
    return read(*bucket_client(url, storage_options))


def _read_s3(client: Any, bucket: str, prefix: str) -> BucketSettings:
    reading = _Reading()

    def get(name: str) -> Callable[[], Mapping[str, Any]]:
        return lambda: client.call_s3(f"get_{name}", Bucket=bucket)

    nothing: Mapping[str, Any] = {}
    versioning = reading.read("versioning", "s3:GetBucketVersioning", get("bucket_versioning"), nothing)
    cycle = reading.read(
        "lifecycle rules", "s3:GetLifecycleConfiguration", get("bucket_lifecycle_configuration"), nothing
    )
    lock = reading.read("object lock", "s3:GetBucketObjectLockConfiguration", get("object_lock_configuration"), nothing)
    place = reading.read("region", "s3:GetBucketLocation", get("bucket_location"), nothing)
    return BucketSettings(
        storage="S3",
        bucket=bucket,
        prefix=prefix,
        region=None if place is None else place.get("LocationConstraint") or "us-east-1",
        is_versioned=None if versioning is None else versioning.get("Status") == "Enabled",
        lock=None if lock is None else _s3_lock(lock),
        rules=None if cycle is None else tuple(_s3_rules(cycle.get("Rules", ()))),
        bills_unfinished_uploads=True,
        unread=tuple(reading.unread),
    )


def _s3_lock(answer: Mapping[str, Any]) -> str:
    retention = answer.get("ObjectLockConfiguration", {}).get("Rule", {}).get("DefaultRetention")
    if not retention:
        return ""
    unit = "Days" if "Days" in retention else "Years"
    return f"object lock keeps every new object for {retention.get(unit)} {unit.lower()}"


def _s3_rules(rules: Iterable[Mapping[str, Any]]) -> Iterable[Rule]:
    for rule in rules:
        condition: Mapping[str, Any] = rule.get("Filter", {})
        both: Mapping[str, Any] = condition.get("And", condition)
        if rule.get("Status") != "Enabled" or "Tag" in condition or both.get("Tags"):
            continue
        name, prefixes = str(rule.get("ID", "")), (str(rule.get("Prefix") or both.get("Prefix") or ""),)
        expiration: Mapping[str, Any] = rule.get("Expiration", {})
        if "Days" in expiration or "Date" in expiration:
            yield Rule(name, Action.DELETE, prefixes, _s3_time(expiration))
        for transition in rule.get("Transitions", ()):
            action = Action.ARCHIVE if transition.get("StorageClass") in _S3_ARCHIVES else Action.COOL
            yield Rule(name, action, prefixes, _s3_time(transition))
        if "NoncurrentVersionExpiration" in rule:
            yield Rule(name, Action.DELETE_OLD_VERSIONS, prefixes)
        if "AbortIncompleteMultipartUpload" in rule:
            yield Rule(name, Action.ABORT_UPLOADS, prefixes)


def _s3_time(when: Mapping[str, Any]) -> str:
    return f" at {when['Date']}" if "Date" in when else f" after {when.get('Days', 0)} days"


def _read_gcs(client: Any, bucket: str, prefix: str) -> BucketSettings:
    reading = _Reading()
    answer = reading.read(
        "settings", "storage.buckets.get", lambda: client.call("GET", "b/{}", bucket, json_out=True), {}
    )
    facts: Mapping[str, Any] = answer or {}
    known = answer is not None
    retention_s = int(facts.get("retentionPolicy", {}).get("retentionPeriod", 0))
    lock = f"a retention policy keeps every object for {retention_s / _DAY_S:g} days" if retention_s else ""
    if facts.get("defaultEventBasedHold"):
        lock = "every new object is held until an event (default event-based hold)"
    return BucketSettings(
        storage="Google Cloud Storage",
        bucket=bucket,
        prefix=prefix,
        region=facts.get("location"),
        is_versioned=bool(facts.get("versioning", {}).get("enabled")) if known else None,
        soft_delete_days=int(facts.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0)) / _DAY_S
        if known
        else None,
        lock=lock if known else None,
        lock_refuses_deletes=True,
        rules=tuple(_gcs_rules(facts.get("lifecycle", {}).get("rule", ()))) if known else None,
        is_hierarchical=bool(facts.get("hierarchicalNamespace", {}).get("enabled")) if known else None,
        writes_per_name_s=_GCS_WRITES_PER_NAME_S,
        unread=tuple(reading.unread),
    )


def _gcs_rules(rules: Iterable[Mapping[str, Any]]) -> Iterable[Rule]:
    for rule in rules:
        condition: Mapping[str, Any] = rule.get("condition", {})
        if not _GCS_OF_CUSTOM_TIME.isdisjoint(condition):  # varvite's objects have none
            continue
        prefixes, after = tuple(condition.get("matchesPrefix") or ("",)), _gcs_time(condition)
        action = rule.get("action", {})
        is_of_old = condition.get("isLive") is False or not _GCS_OF_OLD_VERSIONS.isdisjoint(condition)
        if action.get("type") == "Delete":
            yield Rule("", Action.DELETE_OLD_VERSIONS if is_of_old else Action.DELETE, prefixes, after)
        elif action.get("type") == "SetStorageClass" and not is_of_old and action.get("storageClass") != "STANDARD":
            yield Rule("", Action.COOL, prefixes, after)


def _gcs_time(condition: Mapping[str, Any]) -> str:
    if "createdBefore" in condition:
        return f" that are older than {condition['createdBefore']}"
    return f" after {condition['age']} days" if "age" in condition else ""


def _read_azure(client: Any, bucket: str, prefix: str) -> BucketSettings:
    reading, service = _Reading(), client.service_client
    container = service.get_container_client(bucket)

    def ask(request: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: run_in(client.loop, request())

    properties = reading.read("soft delete", "the account's key", ask(service.get_service_properties), {})
    account = reading.read("kind of account", "the account's key", ask(service.get_account_information), {})
    facts = reading.read("immutability", "Storage Blob Data Reader", ask(container.get_container_properties), {})
    reading.unread.append(
        Unread("lifecycle rules", "not in this interface", "`az storage account management-policy show`")
    )
    kept = None if properties is None else properties.get("delete_retention_policy")
    return BucketSettings(
        storage="Azure Blob Storage",
        bucket=bucket,
        prefix=prefix,
        soft_delete_days=None if kept is None else float(kept.days or 0) if kept.enabled else 0.0,
        lock=None if facts is None else _azure_lock(facts),
        lock_refuses_deletes=True,
        is_hierarchical=None if account is None else account.get("is_hns_enabled"),
        unread=tuple(reading.unread),
    )


def _azure_lock(facts: Any) -> str:
    if facts.get("has_legal_hold"):
        return "the container has a legal hold"
    return "the container has an immutability policy" if facts.get("has_immutability_policy") else ""


def _read_hdfs(client: Any, bucket: str, prefix: str) -> BucketSettings:
    reading = _Reading()
    directory = f"/{bucket.partition('/')[2]}"
    summary = reading.read("quota", "read on the directory", lambda: client.hdfs.get_content_summary(directory), None)
    return BucketSettings(storage="HDFS", bucket=bucket, prefix=prefix, quota=summary and _hdfs_quota(summary))


def _hdfs_quota(summary: Any) -> str:
    names, space = int(summary.quota), int(summary.space_quota)
    limits = [
        f"{summary.file_count + summary.directory_count} of {names} names" if names >= 0 else "",
        f"{summary.space_consumed} of {space} bytes, copies included" if space >= 0 else "",
    ]
    used = " and ".join(filter(None, limits))
    return f"the quota is used up to {used}" if used else ""


_READERS: Final[Mapping[Sequence[str], Callable[[Any, str, str], BucketSettings]]] = {
    S3_PROTOCOLS: _read_s3,
    GCS_PROTOCOLS: _read_gcs,
    AZURE_PROTOCOLS: _read_azure,
    HDFS_PROTOCOLS: _read_hdfs,
}
