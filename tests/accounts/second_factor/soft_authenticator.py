"""An authenticator in software (ES256), which also does what none should, and what a browser tells of it."""

from __future__ import annotations

import json
import secrets
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor

PRESENT, VERIFIED, BACKED_UP, ATTESTED = 0x01, 0x04, 0x18, 0x40


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class SoftAuthenticator:
    """One passkey. Its fields may be changed to what is wrong."""

    host: str = "testserver"
    origin: str = "http://testserver"
    flags: int = PRESENT | VERIFIED
    count: int = 0
    user_handle: bytes | None = None
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    algorithm: int = -7

    def create(self, options: dict[str, Any]) -> str:
        """Answer `navigator.credentials.create()`."""
        self.user_handle = decoded(options["user"]["id"])
        numbers = self.key.public_key().public_numbers()
        public = {1: 2, 3: self.algorithm, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        id_ = self.credential_id
        attested = b"\0" * 16 + struct.pack(">H", len(id_)) + id_ + cbor.encode(public)
        data = self._data(ATTESTED) + attested
        statement = cbor.encode({"fmt": "none", "attStmt": {}, "authData": data})
        return self._answer(
            clientDataJSON=self._client_data("webauthn.create", options), attestationObject=statement,
            transports=["internal"],
        )  # fmt: skip

    def get(self, options: dict[str, Any]) -> str:
        """Answer `navigator.credentials.get()`; it counts its uses."""
        self.count += 1
        data, client_data = self._data(0), self._client_data("webauthn.get", options)
        signature = self.key.sign(data + sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        return self._answer(
            clientDataJSON=client_data, authenticatorData=data, signature=signature, userHandle=self.user_handle
        )

    def _data(self, more: int) -> bytes:
        return sha256(self.host.encode()).digest() + struct.pack(">BI", self.flags | more, self.count)

    def _client_data(self, kind: str, options: dict[str, Any]) -> bytes:
        said = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps(said).encode()

    def _answer(self, **response: Any) -> str:
        shown = {name: encoded(one) if isinstance(one, bytes) else one for name, one in response.items() if one}
        id_ = encoded(self.credential_id)
        return json.dumps({
            "id": id_, "rawId": id_, "type": "public-key", "clientExtensionResults": {}, "response": shown,
        })  # fmt: skip
