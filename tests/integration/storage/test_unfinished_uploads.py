"""`varvite sweep` on uploads in parts that nobody completes."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.jobs.materializer_world import World
from varvite.materializer.commands.cli import main
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.remote.bucket.uploads import abort_uploads

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stores.s3_servers import S3Server

pytestmark = pytest.mark.s3


def begun(server: S3Server, bucket: str, key: str) -> None:
    """A part of an upload that is left."""
    with server.client() as client:
        upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * 1000)


def left(server: S3Server, bucket: str) -> list[str]:
    with server.client() as client:
        return sorted(item["Key"] for item in client.list_multipart_uploads(Bucket=bucket).get("Uploads", ()))


def test_a_sweep_aborts_old_uploads_of_its_job(ceph_server: S3Server, engine: str, tmp_path: Path) -> None:
    server = ceph_server  # moto says of each upload that it began in 2010
    bucket = f"uploads-{uuid.uuid4().hex}"
    server.make_bucket(bucket)
    options = server.storage_options(engine=engine)
    world = World(tmp_path, open_store(f"s3://{bucket}/state", options))
    try:
        world.commit(2)
    finally:
        world.close()
    mine = [f"state/job/snapshots/files/{number}" for number in range(3)]
    other = "state/job2/snapshots/files/1"
    for key in (*mine, other):
        begun(server, bucket, key)

    def swept(*more: str) -> int | None:
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
        pairs = [text for name, value in texts.items() for text in ("--storage-option", f"{name}={value}")]
        command = ["sweep", "--storage", f"s3://{bucket}/state", "--job", "job", "--json", *pairs, *more]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
        count: int | None = json.loads(done.stdout)["unfinished_uploads"]
        return count

    assert swept() == 0, "they may be running"
    assert swept("--grace-hours", "0", "--dry-run") == 3
    assert left(server, bucket) == sorted([*mine, other])
    assert swept("--grace-hours", "0") == 3
    assert left(server, bucket) == [other]


def test_uploads_that_cannot_be_listed_stay(moto_server: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    url = f"s3://absent-{uuid.uuid4().hex}/state"
    assert abort_uploads(url, moto_server.storage_options(), before_s=0.0) is None
    assert "stay, and are billed: NoSuchBucket" in caplog.text


def test_other_storages_delete_theirs() -> None:
    assert abort_uploads("gs://bucket/state", {}, before_s=0.0) is None
