"""An identity provider of a test's own, over HTTP on this machine, that signs whatever it is told to."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, urlsplit

from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

Key = RSAKey | ECKey | OctKey
KEY = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
OTHER_KEY = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})


def signed(claims: dict[str, Any], *, key: Key = KEY, alg: str = "RS256", **header: Any) -> str:
    """Return a token with these claims, whatever they are."""
    return jws.serialize_compact({"alg": alg, "kid": "first", **header}, json.dumps(claims), key, algorithms=[alg])


def unsigned(claims: dict[str, Any]) -> str:
    """Return a token that says of itself that nobody has signed it."""
    return f"{_encoded({'alg': 'none', 'typ': 'JWT'})}.{_encoded(claims)}."


def signed_with_public_key(claims: dict[str, Any]) -> str:
    """Return a token signed with what everybody knows, as if that were a secret: joserfc itself refuses to."""
    text = f"{_encoded({'alg': 'HS256', 'kid': 'first'})}.{_encoded(claims)}"
    return f"{text}.{_base64(hmac.digest(KEY.as_pem(private=False), text.encode(), 'sha256'))}"


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class _Request(BaseHTTPRequestHandler):
    server: Any

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        issuer: Issuer = self.server.issuer
        path = self.path.removeprefix("/realm")
        issuer.asked.append(path)
        status, found = issuer.answer(path, body, self.headers.get("Authorization", ""))
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Location", "http://169.254.169.254/latest")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


class Issuer:
    """`claims` are of whoever signs in; `token` makes the ID token of them; `metadata`, `user_info` are added to.

    `broken` maps a path to the status and body that it answers with. A context manager that ends it.
    """

    def __init__(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _Request)
        self.server.issuer = self  # type: ignore[attr-defined]
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/realm"
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.claims: dict[str, Any] = {"sub": "s-1", "preferred_username": "ada", "groups": ["vision"]}
        self.user_info: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.broken: dict[str, tuple[int, bytes]] = {}
        self.keys: list[Any] = [KEY.as_dict(private=False)]
        self.token: Callable[[dict[str, Any]], Any] = signed
        self.asked: list[str] = []
        self.authorization = ""
        self.form: dict[str, str] = {}
        self.queries: dict[str, dict[str, str]] = {}  # of authorization, by code

    def authorize(self, address: str) -> dict[str, str]:
        """Return the answer that a browser takes back from its sign-in page."""
        query = dict(parse_qsl(urlsplit(address).query))
        code = f"code-{len(self.queries)}"
        self.queries[code] = query
        return {"code": code, "state": query["state"], "iss": self.address}

    def answer(self, path: str, body: bytes, authorization: str) -> tuple[int, Any]:
        """Return status and body of a request."""
        if path in self.broken:
            return self.broken[path]
        match path:
            case "/.well-known/openid-configuration":
                ends = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "jwks"}
                return 200, {
                    "issuer": self.address, "authorization_response_iss_parameter_supported": True,
                    **{name: f"{self.address}/{end}" for name, end in ends.items()}, **self.metadata,
                }  # fmt: skip
            case "/jwks":
                return 200, {"keys": self.keys}
            case "/token":
                return self._token(body, authorization)
            case "/userinfo":
                return 200, self.user_info
        return 404, {}

    def _token(self, body: bytes, authorization: str) -> tuple[int, Any]:
        self.form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self.authorization = authorization
        query = self.queries.pop(self.form["code"], None)
        challenge = _base64(hashlib.sha256(self.form["code_verifier"].encode()).digest())
        if query is None or (query["code_challenge"], query["redirect_uri"]) != (challenge, self.form["redirect_uri"]):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.address, "aud": "falconweb", "iat": now, "exp": now + 60, "nonce": query["nonce"]}
        return 200, {"access_token": "t", "token_type": "Bearer", "id_token": self.token({**claims, **self.claims})}

    def __enter__(self) -> Self:
        self.thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
