"""The settings of buckets on servers, and the first start that depends on them."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from varvite.materializer.commands.cli import main
from varvite.storage.errors import InvalidRequestError
from varvite.storage.job.preflight import bucket_remarks, check_bucket
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.open import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness.servers.azure import AzureServer
    from benchmarks.harness.servers.gcs import GcsServer
    from benchmarks.harness.servers.hdfs import HdfsServer
    from tests.stores.s3_servers import S3Server
    from varvite.storage.object_stores.contract import ObjectStore

DELETES = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "state/"}, "Expiration": {"Days": 30}}
ABORTS = {
    "ID": "abort",
    "Status": "Enabled",
    "Filter": {},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
}


def said(store: ObjectStore, prefix: str = "job/") -> list[tuple[str, str]]:
    return [(level.value, text) for level, text in bucket_remarks(store, prefix)]


@pytest.mark.s3
class TestS3:
    @pytest.fixture(params=["moto_server", "ceph_server"])
    def server(self, request: pytest.FixtureRequest) -> S3Server:
        return request.getfixturevalue(str(request.param))

    def store(self, server: S3Server, engine: str, *rules: dict[str, Any], versioned: bool = False) -> ObjectStore:
        """A store in a new bucket."""
        bucket = f"settings-{uuid.uuid4().hex}"
        server.make_bucket(bucket)
        with server.client() as client:
            if rules:
                client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [*rules]})
            if versioned:
                client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        return open_store(f"s3://{bucket}/state", server.storage_options(engine=engine))

    def test_settings_are_read_with_both_clients(self, server: S3Server, engine: str) -> None:
        remarks = said(self.store(server, engine, DELETES, versioned=True))
        assert [level for level, _ in remarks[:3]] == ["danger", "cost", "cost"]
        assert "'tidy' deletes objects below settings-" in remarks[0][1]
        assert "after 30 days" in remarks[0][1]
        assert ("fact", "versioning is on") in remarks

    def test_a_bucket_without_dangers(self, server: S3Server, engine: str) -> None:
        remarks = said(self.store(server, engine, ABORTS, {**DELETES, "Filter": {"Prefix": "state/other/"}}))
        assert {level for level, _ in remarks} == {"fact"}
        assert not [text for _, text in remarks if "not known" in text]

    def test_the_command_says_it_and_exits_with_1_if_there_is_a_danger(self, server: S3Server) -> None:
        options = {name: value for name, value in server.storage_options().items() if isinstance(value, str)}
        arguments = [f"--storage-option={name}={value}" for name, value in options.items()]
        for rules, code in (([], 0), ([DELETES], 1)):
            store = self.store(server, "obstore", *rules)
            done = CliRunner().invoke(main, ["preflight", "--storage", store.url, *arguments, "--json"])
            assert done.exit_code == code, done.output
            levels = [json.loads(line)["level"] for line in done.stdout.splitlines()]
            assert levels[: 1 + code] == ["ok", "danger"][: 1 + code]
            assert store.list("") == []

    def test_a_lock_and_rights(self, moto_server: S3Server) -> None:
        bucket = f"locked-{uuid.uuid4().hex}"
        with moto_server.client() as client:
            client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
            retention = {"Mode": "GOVERNANCE", "Days": 5}
            client.put_object_lock_configuration(
                Bucket=bucket,
                ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": retention}},
            )
        remarks = said(open_store(f"s3://{bucket}/state", moto_server.storage_options()))
        assert next(text for level, text in remarks if level == "cost").startswith(
            "object lock keeps every new object for 5"
        )

    def test_settings_that_cannot_be_read_are_named_with_their_permission(self, ceph_server: S3Server) -> None:
        options = ceph_server.storage_options(secret="wrong")
        facts = [text for _, text in said(open_store("s3://varvite-test/state", options))]
        assert "lifecycle rules: not known (SignatureDoesNotMatch); s3:GetLifecycleConfiguration shows it" in facts


@pytest.mark.gcs
def test_a_bucket_of_google(gcs_server: GcsServer) -> None:
    remarks = said(open_store(gcs_server.new_location(), gcs_server.storage_options()))
    assert {level for level, _ in remarks} == {"fact"}
    assert ("fact", "it takes 1 write a second of the same name; varvite stays below that") in remarks
    missing = said(open_store("gs://no-such-bucket/x", gcs_server.storage_options()))
    assert any(text.startswith("settings: not known (") for _, text in missing)


@pytest.mark.azure
def test_a_container_of_azure(azure_server: AzureServer) -> None:
    store = open_store(azure_server.new_location(), azure_server.storage_options())
    remarks = said(store)
    assert {level for level, _ in remarks} == {"fact"}
    unknown = [text for _, text in remarks if "not known" in text]
    assert unknown == [
        "lifecycle rules: not known (not in this interface); `az storage account management-policy show` shows it"
    ]


@pytest.mark.hdfs
@pytest.mark.rare
def test_a_directory_of_hdfs(hdfs_server: HdfsServer) -> None:
    store = open_store(hdfs_server.new_location())
    store.put("job/a", b"x")
    assert {level for level, _ in said(store)} == {"fact"}


def test_a_local_directory_has_no_settings(tmp_path: Path) -> None:
    assert bucket_remarks(LocalStore(tmp_path)) == []


@pytest.mark.s3
def test_a_danger_is_an_error_of_the_check_and_the_rest_is_logged(
    moto_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    store = TestS3().store(moto_server, "obstore", DELETES)
    with pytest.raises(InvalidRequestError, match="no job is started there, because the lifecycle rule 'tidy' deletes"):
        check_bucket(store, "job/")
    check_bucket(TestS3().store(moto_server, "obstore", versioned=True), "job/")
    assert [record.levelname for record in caplog.records if "billed for ever" in record.message] == ["WARNING"] * 3
