"""The files of `deploy/storage/s3`: the rights of each role are enough, and no more, on Ceph."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.materializer_world import World
from varvite.materializer.verify.verifier import verify
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.job.preflight import bucket_remarks, check_store
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.remote.bucket.remarks import Level

if TYPE_CHECKING:
    from benchmarks.harness.servers.ceph import Ceph
    from tests.stores.s3_servers import S3Server
    from varvite.storage.object_stores.contract import ObjectStore

pytestmark = pytest.mark.s3
FILES = Path(__file__).resolve().parents[3] / "deploy/storage/s3"
ROLES = ("job", "materializer", "reader")
PREFIX = "team/state"


def content(name: str, bucket: str) -> Any:
    """A file as a user fills it in."""
    text = (FILES / f"{name}.json").read_text()
    return json.loads(text.replace("BUCKET", bucket).replace("PREFIX", PREFIX))


@pytest.fixture
def roots(ceph_cluster: Ceph, ceph_server: S3Server) -> dict[str, ObjectStore]:
    """The root of a storage as each role sees it."""
    bucket, run = f"rights-{uuid.uuid4().hex}", uuid.uuid4().hex[:8]
    ceph_server.make_bucket(bucket)
    statements: list[Any] = []
    for role in ROLES:
        ceph_cluster.create_user(f"{role}-{run}", key=f"{role}{run}", secret=f"secret{run}")
        principal = {"AWS": f"arn:aws:iam:::user/{role}-{run}"}
        rules = content(role, bucket)["Statement"]
        # Ceph 16 asks for the right on the bucket, too, and then for that on each object.
        rules.append(
            {"Sid": "Bulk", "Effect": "Allow", "Action": "s3:DeleteObject", "Resource": f"arn:aws:s3:::{bucket}"}
        )
        statements += [{**rule, "Sid": f"{role}{rule['Sid']}", "Principal": principal} for rule in rules]
    with ceph_server.client() as client:
        client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}))
    return {
        role: open_store(
            f"s3://{bucket}/{PREFIX}", ceph_server.storage_options(key=f"{role}{run}", secret=f"secret{run}")
        )
        for role in ROLES
    }


def test_each_role_can_do_its_work(roots: dict[str, ObjectStore], tmp_path: Path) -> None:
    world = World(tmp_path, roots["job"])
    try:
        check_store(world.store, SystemTokens(), SystemClock())
        sidecar = world.sidecar(root=roots["materializer"])
        for _ in range(4):
            world.commit(5, upload=True)
            assert sidecar.fold()
        assert sidecar.materialized
        assert len(world.store.list(layout.CHAIN)) < 20, "the materializer has deleted nothing"
        report = verify(JobStore(roots["reader"], "job"), "job", SystemClock(), SystemTokens())
        assert report.problems == []
        for role in ("job", "materializer"):
            unread = [
                text for level, text in bucket_remarks(roots[role]) if level is Level.FACT and "not known" in text
            ]
            assert unread == []
    finally:
        world.close()


def test_no_role_can_do_more(roots: dict[str, ObjectStore], tmp_path: Path) -> None:
    world = World(tmp_path, roots["job"])
    try:
        world.commit(2, upload=True)
        chain, log = ([meta.name for meta in world.store.list(area)] for area in (layout.CHAIN, layout.SEGMENTS))
        reader = JobStore(roots["reader"], "job")
        for refused in (
            lambda: world.store.delete(chain[:1]),
            lambda: world.store.delete(log[:1]),
            lambda: reader.delete(chain[:1]),
            lambda: reader.put(f"{layout.SNAPSHOTS}x", b""),
            lambda: roots["job"].put("../elsewhere", b""),
        ):
            with pytest.raises(InvalidRequestError, match=r"grant list, read, write and delete|name"):
                refused()
        assert [meta.name for meta in world.store.list(layout.CHAIN)] == chain
    finally:
        world.close()


@pytest.mark.parametrize("server", ["moto_server", "ceph_server"])
def test_the_lifecycle_is_what_the_check_wants(server: str, request: pytest.FixtureRequest) -> None:
    s3: S3Server = request.getfixturevalue(server)
    bucket = f"lifecycle-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    store = open_store(f"s3://{bucket}/{PREFIX}", s3.storage_options())
    with s3.client() as client:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        assert Level.COST in {level for level, _ in bucket_remarks(store)}
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=content("lifecycle", bucket))
    assert {level for level, _ in bucket_remarks(store)} == {Level.FACT}


def test_the_encryption_is_taken_by_aws(moto_server: S3Server) -> None:
    bucket = f"encryption-{uuid.uuid4().hex}"
    moto_server.make_bucket(bucket)
    with moto_server.client() as client:
        client.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=content("encryption", bucket))
        stored = client.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]
    assert stored["Rules"][0]["BucketKeyEnabled"] is True
