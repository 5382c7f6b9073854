"""Reading when a certificate of ours ends."""

from pathlib import Path

from cryptography import x509

from apps.clusters.domain.credentials import Credential


def of_certificate(path: str, what: str) -> Credential | None:
    """Return from when to when the certificate in a PEM file holds; None where it has none."""
    try:
        read = x509.load_pem_x509_certificate(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return Credential(what, read.not_valid_before_utc, read.not_valid_after_utc)
