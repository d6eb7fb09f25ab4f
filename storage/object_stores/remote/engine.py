"""The choice of the client library for a URL.

S3 has two: obstore, which is faster and smaller, and s3fs, which takes any option of botocore. Both make the same
objects, so processes of a job may use different ones.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.remote.azure import AzureDialect
from varvite.storage.object_stores.remote.dialect import GenericDialect
from varvite.storage.object_stores.remote.gcs import GcsDialect
from varvite.storage.object_stores.remote.hdfs import HdfsDialect
from varvite.storage.object_stores.remote.obstore_s3 import ObstoreDialect
from varvite.storage.object_stores.remote.protocols import (
    AZURE_PROTOCOLS,
    GCS_PROTOCOLS,
    HDFS_PROTOCOLS,
    PROTOCOLS,
    S3_PROTOCOLS,
)
from varvite.storage.object_stores.remote.s3 import S3Dialect
from varvite.storage.object_stores.remote.s3_options import ObstoreOptions, Surroundings, translate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varvite.storage.object_stores.remote.dialect import Dialect

_log: Final = logging.getLogger(__name__)
ENGINE: Final = "engine"
"""The storage option that chooses the client of S3."""
OBSTORE, S3FS = "obstore", "s3fs"
_INSTALL: Final = "pip install 'varvite[s3]'"


class _Cloud(NamedTuple):
    """A storage with one client, which is a filesystem of fsspec."""

    dialect: type[GcsDialect | AzureDialect]
    module: str
    filesystem: str
    """The class, in the module."""
    extra: str
    """The extra that installs it."""


_CLOUDS: Final[Mapping[str, _Cloud]] = {
    **dict.fromkeys(GCS_PROTOCOLS, _Cloud(GcsDialect, "gcsfs.core", "GCSFileSystem", "gcs")),
    **dict.fromkeys(AZURE_PROTOCOLS, _Cloud(AzureDialect, "adlfs", "AzureBlobFileSystem", "azure")),
}
"""By protocol."""


def dialect_of(url: str, storage_options: Mapping[str, Any], *, exclusive_create: bool) -> Dialect:
    """The dialect for a URL with these options; connects to nothing.

    Raises `InvalidRequestError` if there is none, its package is missing, or it takes no such options.
    """
    protocol = url.partition("://")[0]
    cloud = _CLOUDS.get(protocol)
    if cloud is not None:
        return cloud.dialect(_class_of(cloud, protocol), url, storage_options)
    if protocol in HDFS_PROTOCOLS:
        return HdfsDialect(url, storage_options)
    if protocol not in S3_PROTOCOLS:
        return GenericDialect(_filesystem_class(protocol), url, storage_options, exclusive_create=exclusive_create)
    chosen = _choose(url, storage_options)
    if isinstance(chosen, ObstoreOptions):
        return ObstoreDialect(url, chosen)
    return S3Dialect(_filesystem_class(protocol), url, _without_engine(storage_options))


def packages_of(url: str, storage_options: Mapping[str, Any]) -> tuple[str, ...]:
    """The packages to import ahead for a URL, in a process that will fork and itself makes no request."""
    protocol = url.partition("://")[0]
    cloud = _CLOUDS.get(protocol)
    if cloud is not None:
        return (cloud.dialect.library,)
    if protocol in HDFS_PROTOCOLS:
        return (HdfsDialect.library,)
    if protocol not in S3_PROTOCOLS:
        return ()
    return (OBSTORE if isinstance(_choose(url, storage_options), ObstoreOptions) else S3FS,)


def known_protocols() -> list[str]:
    """The protocols of our own dialects and of fsspec, whether or not their packages are installed."""
    registry: Any = importlib.import_module("fsspec.registry")
    return [*chain.from_iterable(PROTOCOLS), *cast("list[str]", registry.available_protocols())]


def _choose(url: str, storage_options: Mapping[str, Any]) -> ObstoreOptions | None:
    """The options for obstore; None if s3fs is to be used."""
    engine = storage_options.get(ENGINE)
    if engine not in (None, OBSTORE, S3FS):
        raise InvalidRequestError(f"the storage option {ENGINE} is {engine!r}; it may be {OBSTORE!r} or {S3FS!r}")
    if engine == S3FS or (engine is None and not _is_installed(OBSTORE)):
        return None
    if not _is_installed(OBSTORE):
        raise InvalidRequestError(f"the storage option {ENGINE} is {OBSTORE!r}, which is not installed; {_INSTALL}")
    around = Surroundings(os.environ, _has_aws_files())
    bucket = url.partition("://")[2].partition("/")[0]
    options = translate(bucket, _without_engine(storage_options), around)
    if not options.obstacles:
        return options
    obstacles = ", ".join(options.obstacles)
    if engine == OBSTORE:
        raise InvalidRequestError(
            f"{url} cannot be opened with {OBSTORE}, which does not support {obstacles}; change that, or set the "
            f"storage option {ENGINE}={S3FS}"
        )
    if not _is_installed(S3FS):
        raise InvalidRequestError(
            f"{url} cannot be opened with {OBSTORE}, which does not support {obstacles}, and {S3FS} is not installed; "
            f"{_INSTALL}"
        )
    _log.info("%s is opened with %s, because %s does not support %s", url, S3FS, OBSTORE, obstacles)
    return None


def _has_aws_files() -> bool:
    try:
        aws = Path.home() / ".aws"
    except RuntimeError:  # a container's user without a home
        return False
    return any((aws / name).exists() for name in ("credentials", "config"))


def _without_engine(storage_options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in storage_options.items() if name != ENGINE}


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # a test has put None, or a module without a spec, into sys.modules
        return False


def _filesystem_class(protocol: str) -> Any:
    """The class that fsspec has for a protocol: Any, as fsspec has no type stubs."""
    try:
        registry: Any = importlib.import_module("fsspec.registry")
        return registry.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:
        advice = _INSTALL if protocol in S3_PROTOCOLS else "install that package, or correct the URL"
        raise InvalidRequestError(f"{protocol}:// cannot be opened: {error}; {advice}") from error


def _class_of(cloud: _Cloud, protocol: str) -> Any:
    """The class of a cloud's filesystems.

    Not that of fsspec's registry: gcsfs's there asks Google's control service by gRPC for the kind of each bucket, and
    waits for 60 s where there is none.
    """
    try:
        return getattr(importlib.import_module(cloud.module), cloud.filesystem)
    except ImportError as error:
        advice = f"pip install 'varvite[{cloud.extra}]'"
        raise InvalidRequestError(f"{protocol}:// cannot be opened: {error}; {advice}") from error
