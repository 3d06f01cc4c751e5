"""SCRAM's formulas (RFC 5802): what a server keeps of a password, and the mechanisms by Kafka's numbers."""

from __future__ import annotations

from odradek.values import value

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2

MECHANISMS = {SCRAM_SHA_256: "SCRAM-SHA-256", SCRAM_SHA_512: "SCRAM-SHA-512"}
MIN_ITERATIONS = 4_096
MAX_ITERATIONS = 16_384

_HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}


@value
class ScramCredential:
    """Enough to check a client's proof and to prove the server's own, too little to pretend to be the client."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def credential(mechanism: int, *, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """What is kept of a password that the client has salted."""
    import hashlib  # OpenSSL, which a node without users need not load.
    import hmac

    hash_name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", hash_name),
        iterations=iterations,
    )
