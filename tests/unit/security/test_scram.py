"""SCRAM's formulas, held against the example of RFC 7677."""

from __future__ import annotations

import base64
import hashlib
import hmac

from odradek.security.scram import SCRAM_SHA_256, credential

_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
_ITERATIONS = 4096
_AUTH_MESSAGE = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)
_PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
_SERVER_SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_what_is_kept_checks_the_clients_proof_and_signs_the_servers() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", _SALT, _ITERATIONS)
    kept = credential(SCRAM_SHA_256, salt=_SALT, salted_password=salted, iterations=_ITERATIONS)
    signature = hmac.digest(kept.stored_key, _AUTH_MESSAGE, "sha256")
    client_key = bytes(left ^ right for left, right in zip(_PROOF, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == kept.stored_key
    assert hmac.digest(kept.server_key, _AUTH_MESSAGE, "sha256") == _SERVER_SIGNATURE
    assert (kept.salt, kept.iterations) == (_SALT, _ITERATIONS)
