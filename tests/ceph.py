"""A real S3 server for tests: one Ceph monitor, one object daemon in memory and one RADOS gateway on the loopback.

Needs the Debian packages ceph-mon, ceph-osd and radosgw; no root, no systemd, no manager daemon. The settings that
are not obvious say why.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ACCESS_KEY = "varvetestkey"
SECRET_KEY = "varvetestsecret"
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
osd_objectstore = memstore
memstore_device_bytes = 2147483648
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


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Ceph:
    """A cluster that lives in one directory; what it stores is gone when it stops."""

    def __init__(self, home: Path) -> None:
        """`home` must be short: the paths of Unix sockets are limited to about 100 characters."""
        if len(str(home)) > 70:
            raise ValueError(f"{home} is too long for Unix sockets; use a shorter directory")
        self._home = home
        self._config = home / "ceph.conf"
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.port = free_port()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start from nothing; returns when the gateway answers. Raises RuntimeError with the log if it does not."""
        try:
            self._start_monitor()
            self._start_osd()
            self._run("radosgw-admin", "-n", "client.rgw", "user", "create", "--uid=varve", "--display-name=varve",
                      f"--access-key={ACCESS_KEY}", f"--secret={SECRET_KEY}")  # fmt: skip
            self._spawn("radosgw", "-n", "client.rgw")
            self._await_gateway()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every daemon, the last one first; there is nothing to save."""
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait(timeout=30)
        self._daemons.clear()

    def _start_monitor(self) -> None:
        for directory in ("run", "log", "mon", "osd", "rgw"):
            (self._home / directory).mkdir(parents=True)
        fsid, mon_port = str(uuid.uuid4()), free_port()
        self._config.write_text(_CONFIG.format(fsid=fsid, mon_port=mon_port, home=self._home, port=self.port))
        monmap = str(self._home / "monmap")
        address = f"[v2:127.0.0.1:{mon_port}]"
        subprocess.run(["monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monmap],
                       check=True, capture_output=True, timeout=60)  # fmt: skip
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self._spawn("ceph-mon", "-i", "a")

    def _start_osd(self) -> None:
        osd_uuid = str(uuid.uuid4())
        self._run("ceph", "--connect-timeout", "30", "osd", "new", osd_uuid)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_uuid)
        self._spawn("ceph-osd", "-i", "0")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run([program, "--conf", str(self._config), *arguments],
                              check=False, capture_output=True, text=True, timeout=90)  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-2000:]}")

    def _spawn(self, program: str, *arguments: str) -> None:
        with (self._home / "log" / f"{program}.out").open("ab") as log:
            command = [program, "--conf", str(self._config), *arguments, "-f"]
            self._daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _await_gateway(self) -> None:
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            try:
                with urllib.request.urlopen(self.endpoint_url, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                if self._daemons[-1].poll() is not None:
                    break
                time.sleep(0.05)
        log = (self._home / "log" / "radosgw.out").read_text(errors="replace")
        raise RuntimeError(f"radosgw does not answer: {log[-2000:]}")
