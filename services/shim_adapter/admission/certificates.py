"""The webhook's certificates, and when new ones are due.

Rule 1: each certificate has its own authority, whose key is discarded after signing, so that
        nothing else can be signed that the API server trusts.
Rule 2: new ones are due when a third of the time is left, for another name, and if the stored ones
        cannot be read.
Rule 3: the API server trusts the previous authority and the new one, so that a replica that still
        uses the previous certificate is trusted until it expires.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)
_EARLIER = timedelta(hours=1)  # clocks differ
_MOST_AUTHORITIES = 2  # trusted authorities, the current and the last; older ones are not


@dataclass(frozen=True, slots=True)
class Certificates:
    """A certificate and its key, and the authorities that are believed, the newest first (PEM)."""

    authorities: bytes
    certificate: bytes
    key: bytes


def names_of(namespace: str, service: str) -> list[str]:
    """Return the names under which a Service is called; the API server uses the one with .svc."""
    return [f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"]


def renewed(
    before: Certificates | None, names: Sequence[str], now: datetime, lifetime: timedelta = LIFETIME
) -> Certificates:
    """Return new certificates; the authority before is believed still."""
    authority_key, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Muster admission authority")])
    authority = _signed(issuer, issuer, authority_key, authority_key, now, lifetime, [])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    certificate = _signed(subject, issuer, key, authority_key, now, lifetime, names)
    pem = authority.public_bytes(Encoding.PEM)
    believed = [pem, *_valid(before.authorities if before is not None else b"", now)]
    return Certificates(
        b"".join(believed[:_MOST_AUTHORITIES]),
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def is_due(there: Certificates | None, names: Sequence[str], now: datetime) -> bool:
    """Return whether new certificates are needed."""
    if there is None:
        return True
    try:
        certificate = x509.load_pem_x509_certificate(there.certificate)
        authority = x509.load_pem_x509_certificates(there.authorities)[0]
        key = load_pem_private_key(there.key, None)
        certificate.verify_directly_issued_by(authority)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        is_pair = key.public_key() == certificate.public_key()
    except Exception:  # noqa: BLE001 - whatever is kept there and cannot be used is made again
        return True
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    left = (end - now) * 3
    known = {str(item.value) for item in found.value}
    return not is_pair or now < begin or left < end - begin or not set(names) <= known


def _signed(  # noqa: PLR0917 - who, by whom, and until when
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lifetime: timedelta,
    names: Sequence[str],
) -> x509.Certificate:
    """Return a certificate for a server, or of an authority where there are no names."""
    is_authority = not names
    constraints = x509.BasicConstraints(is_authority, 0 if is_authority else None)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + lifetime)
        .add_extension(constraints, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .add_extension(_usage(is_authority=is_authority), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(alternatives, critical=False)
        builder = builder.add_extension(server, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority, key_cert_sign=is_authority, crl_sign=is_authority,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _valid(authorities: bytes, now: datetime) -> list[bytes]:
    """Return those of the authorities that have not run out; none where they cannot be read."""
    try:
        found = x509.load_pem_x509_certificates(authorities) if authorities else []
    except ValueError:
        return []
    return [item.public_bytes(Encoding.PEM) for item in found if now < item.not_valid_after_utc]


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)
