"""Fixtures that several directories of tests share, and the profile of all property tests.

Properties have no deadline, because the machine may be busy. Under CI the examples are the same in every run, so that a
change is judged by what it changed; elsewhere they are new.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.s3_servers import ceph_server, moto_server

__all__ = ["ceph_server", "moto_server"]

settings.register_profile(
    "varve", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("varve")
