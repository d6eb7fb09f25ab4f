"""A job from and to a broker that wants a password over TLS: Spark's client and the sink's each have their options."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyspark.sql import SparkSession

from tests.spark.kafka.kafka_jobs import KafkaJob
from tests.stores.kafka_broker import Kafka, running_broker, skip_without_kafka
from varvite.storage.errors import VarviteError

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def write_certificate(directory: Path) -> Path:
    """A certificate for the loopback, signed by itself; its file, and `server.pem` with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "server.pem").write_bytes(private + certificate)
    (directory / "ca.pem").write_bytes(certificate)
    return directory / "ca.pem"


def secure_settings(directory: Path) -> tuple[str, dict[str, Any]]:
    """The address of a second listener, with TLS and a password, and the broker's settings for it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return address, {
        "secure": address,
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "inter_broker_listener_name": "PLAINTEXT",
        "listener_name_secure_sasl_enabled_mechanisms": "PLAIN",
        "listener_name_secure_plain_sasl_jaas_config": f'{LOGIN} user_alice="secret";',
        "listener_name_secure_ssl_keystore_type": "PEM",
        "listener_name_secure_ssl_keystore_location": directory / "server.pem",
    }


@pytest.mark.timeout(600)
def test_a_job_reads_and_writes_with_a_password_over_tls(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_kafka()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    authority = write_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other = write_certificate(tmp_path / "other")
    address, settings = secure_settings(tmp_path)
    with running_broker(tmp_path / "kafka", **settings) as broker:
        job = KafkaJob(spark, Kafka(broker.servers), tmp_path)
        job.put(100)
        job.servers = address
        job.source_options = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{LOGIN} username="alice" password="secret";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(authority),
        }
        sink = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": "secret",
            "kafka.ssl.ca.location": str(authority),
        }
        with pytest.raises(VarviteError, match="Authentication failed") as refused:
            job.start(**{**sink, "kafka.sasl.password": "other"})
        assert "secret" not in str(refused.value)
        with pytest.raises(VarviteError, match=r"certificate verify failed"):
            job.start(**{**sink, "kafka.ssl.ca.location": str(other)})
        for _ in range(2):
            job.put(50)
            job.run(**sink)
        job.check()
