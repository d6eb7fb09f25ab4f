"""A real S3 server for tests and benchmarks: one Ceph monitor, one object daemon and one RADOS gateway on the loopback.

What it stores is in memory, or in a file: then every daemon may be killed at any time and started again, and what was
acknowledged is there. Needs the Debian packages ceph-mon, ceph-osd and radosgw; no root, no systemd, no manager
daemon. The settings that are not obvious say why.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import botocore.session

from benchmarks.harness.servers.process import free_port

ACCESS_KEY = "varvitetestkey"
SECRET_KEY = "varvitetestsecret"
BUCKET = "varvite"
DAEMONS: dict[str, tuple[str, ...]] = {
    "radosgw": ("-n", "client.rgw"),
    "ceph-osd": ("-i", "0"),
    "ceph-mon": ("-i", "a"),
}
"""Program → arguments; in the order in which they end best."""
PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool", "ceph")

_CONFIG = """\
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon_port}]
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr1 = false
ms_bind_ipv6 = false
# No keys: everything listens on the loopback only. With them off, the gateway's default "secure" mode would hang.
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_client_mode = crc
ms_cluster_mode = crc
ms_service_mode = crc
ms_mon_client_mode = crc
ms_mon_cluster_mode = crc
ms_mon_service_mode = crc
auth_allow_insecure_global_id_reclaim = true
keyring = /dev/null
run_dir = {home}/run
admin_socket = {home}/run/$name.asok
pid_file = {home}/run/$name.pid
log_file = {home}/log/$name.log
crash_dir = {home}/log
mon_data = {home}/mon
osd_data = {home}/osd
# A monitor stops itself on a nearly full disk, which a CI machine often has.
mon_data_avail_warn = 2
mon_data_avail_crit = 1
# Each new pool waits for the monitor: a second each with the default interval.
paxos_propose_interval = 0.05
paxos_min_wait = 0.02
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_objectstore = {objectstore}
memstore_device_bytes = 2147483648
# A sparse file.
bluestore_block_size = 8589934592
osd_memory_target = 939524096
# The default of 256 is shorter than S3's longest key.
osd_max_object_name_len = 2048
osd_class_load_list = *
osd_class_default_list = *
debug_ms = 0
debug_mon = 0
debug_osd = 0
debug_paxos = 0
debug_rgw = 0
[client.rgw]
rgw_data = {home}/rgw
# Without tcp_nodelay a small GET takes 48 ms instead of 4.
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw_rados_pool_pg_num_min = 4
rgw_override_bucket_index_max_shards = 1
rgw_dynamic_resharding = false
rgw_enable_usage_log = false
rgw_enable_quota_threads = false
rgw_enable_apis = s3, admin
rgw_thread_pool_size = 64
"""


def missing_programs() -> list[str]:
    """The programs that are not installed; empty if Ceph can be started."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


@contextmanager
def running_ceph(*, durable: bool = False) -> Generator[Ceph]:
    """A cluster in a temporary directory, which is gone afterwards; see `Ceph`."""
    home = Path(tempfile.mkdtemp(prefix="varvite-ceph-"))
    cluster = Ceph(home, durable=durable)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(home, ignore_errors=True)


class Ceph:
    """A cluster that lives in one directory, for one start from nothing."""

    def __init__(self, home: Path, *, durable: bool = False) -> None:
        """A cluster that does not run yet.

        Args:
            home: Must be short: the paths of Unix sockets are limited to about 100 characters.
            durable: Objects are in a file below `home`, synced like a disk, and outlive the daemons; else in memory.
        """
        if len(str(home)) > 70:
            raise ValueError(f"{home} is too long for Unix sockets; use a shorter directory")
        self._home = home
        self._config = home / "ceph.conf"
        self._objectstore = "bluestore" if durable else "memstore"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.port = free_port()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def storage_options(self, endpoint_url: str = "") -> dict[str, Any]:
        """The options that fsspec needs for the gateway, or for a proxy in front of it."""
        return {
            "key": ACCESS_KEY,
            "secret": SECRET_KEY,
            "endpoint_url": endpoint_url or self.endpoint_url,
            "client_kwargs": {"region_name": "us-east-1"},
        }

    def new_location(self) -> str:
        """A URL in `BUCKET`, which `make_bucket` makes, below which nothing is yet."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"

    def make_bucket(self, name: str, *, is_public: bool = False) -> None:
        """Create a bucket; a public one may be read and written without a signature."""
        client = botocore.session.get_session().create_client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=name, ACL="public-read-write" if is_public else "private")
        client.close()

    def create_user(self, name: str, key: str, secret: str) -> None:
        """Create a user with these credentials and no rights on buckets of others."""
        self._admin("user", "create", f"--uid={name}", f"--display-name={name}",
                    f"--access-key={key}", f"--secret={secret}")  # fmt: skip

    def limit_objects(self, bucket: str, objects_max: int | None) -> None:
        """Let a bucket hold at most so many objects, or as many as it likes."""
        here = ("--quota-scope=bucket", f"--bucket={bucket}")
        if objects_max is None:
            self._admin("quota", "disable", *here)
        else:
            self._admin("quota", "set", *here, f"--max-objects={objects_max}")
            self._admin("quota", "enable", *here)

    def start(self) -> None:
        """Start from nothing; returns when the gateway answers. Raises RuntimeError with the log if it does not."""
        try:
            self._start_monitor()
            self._start_osd()
            self.create_user("varvite", ACCESS_KEY, SECRET_KEY)
            self.restart("radosgw")
            self._await_gateway()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every daemon for good."""
        for program in DAEMONS:
            self.kill(program)

    def kill(self, program: str) -> None:
        """SIGKILL one of `DAEMONS`; does nothing if it does not run."""
        daemon = self._daemons.pop(program, None)
        if daemon is not None:
            daemon.kill()
            daemon.wait(timeout=30)

    def restart(self, program: str) -> None:
        """Start one of `DAEMONS` that does not run; it answers some time later."""
        with (self._home / "log" / f"{program}.out").open("ab") as log:
            command = [program, "--conf", str(self._config), *DAEMONS[program], "-f"]
            self._daemons[program] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _start_monitor(self) -> None:
        for directory in ("run", "log", "mon", "osd", "rgw"):
            (self._home / directory).mkdir(parents=True)
        fsid, mon_port = str(uuid.uuid4()), free_port()
        self._config.write_text(
            _CONFIG.format(fsid=fsid, mon_port=mon_port, home=self._home, port=self.port, objectstore=self._objectstore)
        )
        monmap = str(self._home / "monmap")
        address = f"[v2:127.0.0.1:{mon_port}]"
        subprocess.run(["monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monmap],
                       check=True, capture_output=True, timeout=60)  # fmt: skip
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self.restart("ceph-mon")

    def _start_osd(self) -> None:
        osd_uuid = str(uuid.uuid4())
        self._run("ceph", "--connect-timeout", "30", "osd", "new", osd_uuid)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_uuid)
        self.restart("ceph-osd")

    def _admin(self, *arguments: str) -> None:
        self._run("radosgw-admin", "-n", "client.rgw", *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run([program, "--conf", str(self._config), *arguments],
                              check=False, capture_output=True, text=True, timeout=90)  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-2000:]}")

    def _await_gateway(self) -> None:
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            try:
                with urllib.request.urlopen(self.endpoint_url, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                if self._daemons["radosgw"].poll() is not None:
                    break
                time.sleep(0.05)
        log = (self._home / "log" / "radosgw.out").read_text(errors="replace")
        raise RuntimeError(f"radosgw does not answer: {log[-2000:]}")
