"""Fixtures that several directories of tests share."""

from __future__ import annotations

from tests.s3_servers import ceph_server, moto_server

__all__ = ["ceph_server", "moto_server"]
