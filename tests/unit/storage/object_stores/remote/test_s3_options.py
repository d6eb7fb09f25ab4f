"""The options of S3 for obstore: they mean what they mean to s3fs, or are named as obstacles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from varvite.storage.object_stores.remote.s3_options import Surroundings, translate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varvite.storage.object_stores.remote.s3_options import ObstoreOptions

NOWHERE = Surroundings({}, has_aws_files=False)
SIGNED = {"key": "k", "secret": "s3cr3t"}
AT_HOME = {**SIGNED, "endpoint_url": "http://127.0.0.1:9000"}


def translated(options: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> ObstoreOptions:
    return translate("bucket", options, Surroundings(environment or {}, has_aws_files=False))


def test_the_options_of_s3fs_are_said_in_the_words_of_obstore() -> None:
    given = {
        **AT_HOME,
        "token": "t",
        "client_kwargs": {"region_name": "eu-west-1", "verify": False},
        "config_kwargs": {"connect_timeout": 2, "read_timeout": 1.5, "signature_version": "s3v4"},
        "use_listings_cache": False,
    }
    made = translated(given)
    assert made.config == {
        "aws_access_key_id": "k",
        "aws_secret_access_key": "s3cr3t",
        "aws_session_token": "t",
        "aws_endpoint_url_s3": "http://127.0.0.1:9000",
        "aws_region": "eu-west-1",
        "aws_virtual_hosted_style_request": False,
        "aws_conditional_put": "etag",
    }
    assert made.http == {"allow_http": True, "allow_invalid_certificates": True, "pool_max_idle_per_host": "32"}
    assert (made.connect_timeout_s, made.read_timeout_s) == (2, 1.5)
    assert made.obstacles == ()


def test_the_defaults_are_those_of_the_other_client() -> None:
    made = translated(AT_HOME)
    assert (made.connect_timeout_s, made.read_timeout_s) == (5, 20)
    assert made.config["aws_region"] == "us-east-1", "what botocore signs for where it knows none"


def test_an_anonymous_client_does_not_sign() -> None:
    made = translated({"anon": True, "endpoint_url": "https://s3.example.com"})
    assert made.config["aws_skip_signature"] is True
    assert made.http["allow_http"] is False
    assert made.obstacles == ()


@pytest.mark.parametrize(
    ("bucket", "options", "is_virtual"),
    [
        ("bucket", {}, True),
        ("bucket", {"config_kwargs": {"s3": {"addressing_style": "virtual"}}}, True),
        ("bucket", {"config_kwargs": {"s3": {"addressing_style": "path"}}}, False),
        ("with.dots", {}, False),  # the certificate of AWS does not hold for such a host
        ("bucket", {"endpoint_url": "https://s3.example.com"}, False),
        ("bucket", {"client_kwargs": {"endpoint_url": "https://s3.example.com"}}, False),
    ],
)
def test_the_address_is_that_of_botocore(bucket: str, options: dict[str, Any], is_virtual: bool) -> None:
    made = translate(bucket, {**SIGNED, **options}, Surroundings({"AWS_DEFAULT_REGION": "eu-west-1"}, False))
    assert made.config["aws_virtual_hosted_style_request"] is is_virtual
    assert made.config["aws_region"] == "eu-west-1"
    assert made.obstacles == ()


def test_endpoint_and_region_come_from_the_environment_unless_they_are_given() -> None:
    environment = {"AWS_ENDPOINT_URL": "http://there:1", "AWS_ENDPOINT_URL_S3": "http://here:1", "AWS_REGION": "r"}
    assert translated(SIGNED, environment).config["aws_endpoint_url_s3"] == "http://here:1"
    assert translated(SIGNED, environment).config["aws_region"] == "r"
    assert translated(AT_HOME, environment).config["aws_endpoint_url_s3"] == AT_HOME["endpoint_url"]


@pytest.mark.parametrize(
    ("options", "environment", "obstacle"),
    [
        ({**AT_HOME, "profile": "p"}, {}, "the option profile"),
        ({**AT_HOME, "requester_pays": True}, {}, "the option requester_pays"),
        ({**AT_HOME, "s3_additional_kwargs": {"ACL": "x"}}, {}, "the option s3_additional_kwargs.ACL"),
        ({**AT_HOME, "client_kwargs": {"verify": "/ca.pem"}}, {}, "the option client_kwargs.verify"),
        ({**AT_HOME, "config_kwargs": {"retries": {"mode": "x"}}}, {}, "the option config_kwargs.retries.mode"),
        ({**AT_HOME, "config_kwargs": {"s3": {"addressing_style": "virtual"}}}, {}, "addressing_style"),
        ({**AT_HOME, "config_kwargs": {"read_timeout": "20"}}, {}, "no number of seconds"),
        ({**AT_HOME, "endpint_url": "x"}, {}, "the option endpint_url"),
        ({"key": "k", "endpoint_url": "http://x"}, {}, "a key without a secret"),
        (SIGNED, {}, "no region"),
        (SIGNED, {"AWS_REGION": "r", "AWS_CA_BUNDLE": "/ca.pem"}, "AWS_CA_BUNDLE"),
        (AT_HOME, {"AWS_SESSION_TOKEN": "t"}, "AWS_SESSION_TOKEN beside a key"),
        ({}, {"AWS_REGION": "r", "AWS_PROFILE": "p"}, "a profile in ~/.aws"),
    ],
)
def test_what_obstore_cannot_do_is_named(options: dict[str, Any], environment: dict[str, str], obstacle: str) -> None:
    (named,) = translated(options, environment).obstacles
    assert obstacle in named
    assert "s3cr3t" not in named


@pytest.mark.parametrize("bucket", ["fast--use1-az4--x-s3", "arn:aws:s3:eu:1:accesspoint"])
def test_buckets_that_only_botocore_can_address_are_named(bucket: str) -> None:
    (named,) = translate(bucket, AT_HOME, NOWHERE).obstacles
    assert bucket in named


def test_credentials_of_the_environment_or_of_the_machine_need_no_other_client() -> None:
    around = Surroundings({"AWS_ACCESS_KEY_ID": "k", "AWS_REGION": "r", "AWS_SESSION_TOKEN": "t"}, has_aws_files=True)
    assert translate("bucket", {}, around).obstacles == ()
    assert translate("bucket", {}, Surroundings({"AWS_REGION": "r"}, has_aws_files=False)).obstacles == ()
    assert translate("bucket", {}, Surroundings({"AWS_REGION": "r"}, has_aws_files=True)).obstacles != ()
