"""The options of S3 for obstore, made from those of s3fs, which users give; pure.

What cannot be said to obstore is named. Such a job is read and written with s3fs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from varvite.storage.object_stores.remote.dialect import CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from varvite.storage.object_stores.remote.s3 import DIRECTORY_BUCKET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_PLAIN_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]*", re.IGNORECASE)
_CERTIFICATES: Final = "AWS_CA_BUNDLE"
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS: Final = ("AWS_DEFAULT_REGION", "AWS_REGION")
_PROFILES: Final = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")
_DEFAULT_REGION: Final = "us-east-1"
"""The region that botocore signs for at an endpoint of which no region is known."""
_SAME_ANYWAY: Final[Mapping[str, Collection[Any]]] = {
    "use_ssl": (True,),
    "skip_instance_cache": (True, False),
    "use_listings_cache": (True, False),
    "client_kwargs.verify": (True,),
    "config_kwargs.signature_version": ("s3v4",),
    "config_kwargs.s3.addressing_style": ("auto", "path"),
}
"""Options that change nothing at these values."""


@dataclass(frozen=True)
class Surroundings:
    """The facts outside the options that count."""

    environment: Mapping[str, str]
    has_aws_files: bool
    """True if there are `~/.aws/credentials` or `~/.aws/config`."""


@dataclass(frozen=True)
class ObstoreOptions:
    """The options of obstore's `S3Store`. They may hold secrets."""

    config: Mapping[str, Any]
    http: Mapping[str, Any]
    """Those of its HTTP client, without timeouts."""
    connect_timeout_s: float
    read_timeout_s: float
    obstacles: tuple[str, ...]
    """Wishes that obstore cannot fulfil, for people; empty if it can do all."""


def translate(bucket: str, user_options: Mapping[str, Any], around: Surroundings) -> ObstoreOptions:
    """The options of obstore that mean the same as these of s3fs, in this environment."""
    options = dict(_flat(user_options))
    environment = around.environment
    key, secret, token, anon = (options.pop(name, None) for name in ("key", "secret", "token", "anon"))
    endpoint = options.pop("endpoint_url", None) or options.pop("client_kwargs.endpoint_url", None)
    endpoint = endpoint or next((environment[name] for name in _ENDPOINTS if environment.get(name)), None)
    region = options.pop("client_kwargs.region_name", None)
    region = region or next((environment[name] for name in _REGIONS if environment.get(name)), None)
    connect_s = options.pop("config_kwargs.connect_timeout", CONNECT_TIMEOUT_S)
    read_s = options.pop("config_kwargs.read_timeout", READ_TIMEOUT_S)
    is_unverified = options.get("client_kwargs.verify") is False
    if is_unverified:
        del options["client_kwargs.verify"]
    is_path_style = bool(endpoint) or "." in bucket or options.get("config_kwargs.s3.addressing_style") == "path"
    is_plain_http = str(endpoint or "").startswith("http://")
    config = {
        "aws_access_key_id": key,
        "aws_secret_access_key": secret,
        "aws_session_token": token,
        "aws_skip_signature": anon or None,
        "aws_endpoint_url_s3": endpoint,
        "aws_region": region or _DEFAULT_REGION,
        "aws_virtual_hosted_style_request": not is_path_style,
        "aws_conditional_put": "etag",
    }
    http = {
        "allow_http": is_plain_http,
        "allow_invalid_certificates": is_unverified,
        "pool_max_idle_per_host": "32",
    }
    rules = (
        (bucket.endswith(DIRECTORY_BUCKET), f"the directory bucket {bucket}"),
        (_PLAIN_BUCKET.fullmatch(bucket) is None, f"the name of the bucket {bucket}"),
        (bool(environment.get(_CERTIFICATES)) and not is_plain_http, _CERTIFICATES),
        (bool(key) != bool(secret), "a key without a secret, or the other way round"),
        (bool(key) and not token and bool(environment.get("AWS_SESSION_TOKEN")), "AWS_SESSION_TOKEN beside a key"),
        (
            not key and not anon and not environment.get("AWS_ACCESS_KEY_ID") and _has_profile(around),
            "credentials of a profile in ~/.aws",
        ),
        (not endpoint and not region, "no region (client_kwargs.region_name or AWS_DEFAULT_REGION)"),
        (not (_is_duration(connect_s) and _is_duration(read_s)), "a timeout that is no number of seconds"),
    )
    obstacles = [text for applies, text in rules if applies]
    obstacles += [
        f"the option {name}" for name, value in options.items() if not _is_same_anyway(name, value, bool(endpoint))
    ]
    return ObstoreOptions(
        config={name: value for name, value in config.items() if value is not None},
        http=http,
        connect_timeout_s=connect_s,
        read_timeout_s=read_s,
        obstacles=tuple(obstacles),
    )


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Options by their dotted names, without those that are None."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def _is_same_anyway(name: str, value: Any, has_endpoint: bool) -> bool:
    if name == "config_kwargs.s3.addressing_style" and value == "virtual":
        return not has_endpoint
    values = _SAME_ANYWAY.get(name, ())
    return any(value is each or (isinstance(each, str) and value == each) for each in values)


def _is_duration(seconds: Any) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0


def _has_profile(around: Surroundings) -> bool:
    return around.has_aws_files or any(around.environment.get(name) for name in _PROFILES)
