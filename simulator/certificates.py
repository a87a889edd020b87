"""The self-signed certificate of the simulated BMCs, kept in a folder between starts."""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 825


@dataclass(frozen=True)
class ServerCertificate:
    """A certificate with its key in files, and the SHA-256 fingerprint as `AA:BB:..`."""

    certificate: Path
    key: Path
    fingerprint: str

    @property
    def pem(self) -> str:
        """The certificate as PEM text."""
        return self.certificate.read_text()

    def context(self) -> ssl.SSLContext:
        """Return a server-side TLS context with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


def server_certificate(folder: Path) -> ServerCertificate:
    """Return the certificate in a folder, created there on the first call or after it has expired."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate_file, key_file = folder / "simulator.pem", folder / "simulator.key"
    certificate: x509.Certificate | None = None
    if certificate_file.exists() and key_file.exists():
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    if certificate is None or certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(days=1):
        certificate = _make(certificate_file, key_file)
    digest = certificate.fingerprint(hashes.SHA256())
    return ServerCertificate(certificate_file, key_file, digest.hex(":").upper())


def load_pem(context: ssl.SSLContext, pem: str) -> str:
    """Load the certificate and key of a PEM text into a TLS context; returns the certificate's PEM.

    Raises ssl.SSLError or ValueError for a text without both, or where they do not match.
    """
    certificate = x509.load_pem_x509_certificate(pem.encode())
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        # Tried on another context first: a context keeps the certificate even if the key does not match.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file.name)
        context.load_cert_chain(file.name)
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _make(certificate_file: Path, key_file: Path) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Simulated Falcon BMC")])
    now = datetime.now(UTC)
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # Two chassis may start on one folder concurrently: files are written atomically, and only the owner reads the key.
    _write(key_file, key_pem, 0o600)
    _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate


def _write(file: Path, content: bytes, mode: int) -> None:
    part = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    part.replace(file)
