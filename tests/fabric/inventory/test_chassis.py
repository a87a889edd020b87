"""Adding, editing and removing chassis by page and API, against real services and against what is none."""

from __future__ import annotations

import datetime as dt
import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from accounts.models import Tenant, User
from core import credentials
from core.errors import Conflict, Forbidden, Invalid, NotFound
from fabric.inventory import access, services
from fabric.inventory.models import Chassis, Device, Host
from fabric.operations.models import Operation
from falconweb.testing.chassis import mirror
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import SHARED, serve_mockup
from tests.bmc.nonsense import ROOT, NonsenseServer, collection, service_root

UNTRUSTED = f"The certificate of 127.0.0.1 is not trusted by this system's CAs. {services.TRUST_HINT}"

SECRET = "Sesame-open-up-4"
BODY = "what-lies-behind-this-address"
OTHER_PIN = "127.0.0.1 shows a certificate with another fingerprint than this one."
NO_PIN = "The fingerprint is not a SHA-256 fingerprint: 64 hexadecimal digits are needed."
NO_PEM = "This is not a certificate in PEM form, which starts with -----BEGIN CERTIFICATE-----."


@contextmanager
def serve(
    body: str, *, status: int = 200, kind: str = "text/html", location: str = "", tls: Path | None = None
) -> Iterator[str]:
    """Answer everything with the same, from a thread; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the names are http.server's

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def certificate(folder: Path, *, days: int = 1) -> Path:
    """Write a self-signed certificate of another host, valid for so long, and its key, into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elsewhere.example")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=9))
        .not_valid_after(now + dt.timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "certificate.pem"
    file.write_bytes(private + made.public_bytes(encoding))
    return file


@pytest.fixture(scope="module")
def bmc() -> Iterator[SimulatorProcess]:
    """One simulated chassis for tests that only ask who answers."""
    with SimulatorProcess(chassis="falcon-1") as process:
        yield process


@pytest.fixture
def client(administrator: User) -> Client:
    """The administrator's browser."""
    browser = Client()
    browser.force_login(administrator)
    return browser


def typed(process: SimulatorProcess, **more: Any) -> dict[str, Any]:
    """Return what somebody types into the form, the box of polling ticked."""
    return {
        "name": "falcon-1", "url": process.address, "username": "administrator", "password": process.password,
        "fingerprint": process.fingerprint, "ca_pem": "", "enabled": "on", **more,
    }  # fmt: skip


def add(person: User, url: str, **more: Any) -> Chassis:
    values: dict[str, Any] = {"name": "falcon-1", "username": "administrator", "password": SECRET, **more}
    return services.chassis_add(person=person, url=url, **values)


def add_process(person: User, process: SimulatorProcess, **more: Any) -> Chassis:
    values = {"password": process.password, "fingerprint": process.fingerprint, **more}
    return add(person, process.address, **values)


def refused(call: Callable[[], object]) -> dict[str, str]:
    """Return the fields and their sentences; the first sentence is the whole of what is said."""
    with pytest.raises(Invalid) as caught:
        call()
    errors: dict[str, str] = caught.value.details["errors"]
    assert list(errors.values()) == [caught.value.sentence]
    assert BODY not in caught.value.sentence
    assert SECRET not in caught.value.sentence
    return errors


def test_a_chassis_is_added_by_the_form_and_its_password_is_nowhere_to_be_read(
    client: Client, bmc: SimulatorProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = client.post(reverse("fabric:chassis_add"), typed(bmc), follow=True)
    row = Chassis.objects.get()
    assert answer.redirect_chain == [(reverse("fabric:chassis", args=[row.pk]), 302)]
    assert "falcon-1 was added." in answer.content.decode()
    assert (row.url, row.username, row.enabled, row.uuid != "") == (bmc.address, "administrator", True, True)
    assert row.address().password == bmc.password
    assert bmc.password not in row.password_encrypted
    pages = [answer, client.get(reverse("fabric:chassis_edit", args=[row.pk])), client.get(reverse("fabric:fabric"))]
    pages += [
        client.get(reverse("api:chassis", args=[row.pk])),
        client.get(reverse("fabric:chassis_remove", args=[row.pk])),
    ]
    for page in pages:
        assert bmc.password not in page.content.decode()
        assert row.password_encrypted not in page.content.decode()
    assert "ada added chassis falcon-1" in caplog.text
    assert bmc.password not in caplog.text


def test_an_untrusted_certificate_is_shown_compared_and_accepted(client: Client, bmc: SimulatorProcess) -> None:
    shown = client.post(reverse("fabric:chassis_add"), typed(bmc, fingerprint="")).content.decode()
    assert "The certificate of 127.0.0.1 is not trusted by this system" in shown
    assert f'value="{bmc.fingerprint}"' in shown
    assert "Enter the password again" in shown
    assert bmc.password not in shown
    assert not Chassis.objects.exists()
    client.post(reverse("fabric:chassis_add"), typed(bmc, fingerprint="", accept=bmc.fingerprint))
    assert Chassis.objects.get().fingerprint == bmc.fingerprint


def test_a_ca_is_enough_and_another_one_is_not(administrator: User, bmc: SimulatorProcess, tmp_path: Path) -> None:
    other = certificate(tmp_path).read_text()
    other = other[other.index("-----BEGIN CERTIFICATE") :]
    errors = refused(lambda: add_process(administrator, bmc, fingerprint="", ca_pem=other))
    assert errors == {"ca_pem": "The certificate of 127.0.0.1 is not trusted by this CA."}
    row = add_process(administrator, bmc, fingerprint="", ca_pem=bmc.certificate.read_text().replace("\n", "\r\n"))
    assert row.ca_pem.startswith("-----BEGIN CERTIFICATE-----\n")


@pytest.mark.parametrize(
    ("given", "wrong", "sentence"),
    [
        ({"password": SECRET}, "password", "127.0.0.1 refuses this name and password."),
        ({"username": "nobody"}, "password", "127.0.0.1 refuses this name and password."),
        ({"fingerprint": "00" * 32}, "fingerprint", OTHER_PIN),
        ({"fingerprint": "00:11"}, "fingerprint", NO_PIN),
        ({"fingerprint": ""}, "fingerprint", UNTRUSTED),
        ({"ca_pem": "no certificate"}, "ca_pem", NO_PEM),
        ({"ca_pem": "BEGIN PRIVATE KEY"}, "ca_pem", "This contains a private key: enter the certificate only."),
        ({"name": " "}, "name", "A name is needed."),
        ({"name": "two\nlines"}, "name", "A name has at most 100 characters, all of them printable."),
        ({"username": ""}, "username", "A password needs a name to sign in with."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence_beside_its_field(
    administrator: User, bmc: SimulatorProcess, given: dict[str, str], wrong: str, sentence: str
) -> None:
    assert refused(lambda: add_process(administrator, bmc, **given)) == {wrong: sentence}
    assert not Chassis.objects.exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "not a URL"),
        ("https://", "not a URL"),
        ("ftp://bmc.example", "not a URL"),
        ("file:///etc/passwd", "not a URL"),
        ("https://bmc.example:99999", "not a URL"),
        ("https://bmc.example:0", "not a URL"),
        ("https://bmc example", "not a URL"),
        ("https://[::1\n]", "not a URL"),
        (f"https://ada:{SECRET}@bmc.example", "carries a user or password"),
        ("https://@bmc.example", "carries a user or password"),
        ("https://bmc.example/admin", "without a path"),
        ("https://bmc.example/redfish/v1/../../secret", "without a path"),
        ("https://bmc.example?x=1", "without a path"),
        ("https://bmc.example#x", "without a path"),
        ("http://bmc.example", "no encryption"),
    ],
)
def test_an_address_is_scheme_host_and_port(administrator: User, url: str, words: str) -> None:
    assert words in refused(lambda: add(administrator, url))["url"]
    assert not Chassis.objects.exists()


@pytest.mark.parametrize("spelling", ["{}/", " {}/redfish/v1/ ", "{}"])
def test_one_address_has_one_spelling_and_one_chassis(
    administrator: User, bmc: SimulatorProcess, spelling: str
) -> None:
    url = spelling.format(bmc.address).replace("https", "HTTPS")
    assert add(administrator, url, password=bmc.password, fingerprint=bmc.fingerprint).url == bmc.address
    without_scheme = bmc.address.removeprefix("https://")
    assert refused(lambda: add(administrator, without_scheme, name="other")) == {
        "url": "falcon-1 has this address already."
    }
    assert refused(lambda: add(administrator, "https://bmc.example", name="FALCON-1")) == {
        "name": "There is a chassis of the name falcon-1 already."
    }


def test_nothing_listening_is_said_so(administrator: User) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        for url in (f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port}"):
            errors = refused(partial(add, administrator, url, allow_http=True))
            assert f"127.0.0.1 does not answer at port {port}" in errors["url"]
    errors = refused(lambda: add(administrator, "https://no-such-host.invalid"))
    assert errors == {"url": "The name no-such-host.invalid is not known."}
    assert not Chassis.objects.exists()


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:169.254.0.1]", "[fe80::1]", "100.100.100.200"])
def test_no_chassis_has_a_link_local_address_or_that_of_a_metadata_service(administrator: User, host: str) -> None:
    errors = refused(lambda: add(administrator, f"https://{host}"))
    assert errors["url"].endswith("Nothing is sent there.")
    assert not Chassis.objects.exists()


def test_a_listener_that_says_nothing_is_not_waited_for_forever(
    administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "PROBE_REQUEST_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert refused(lambda: add(administrator, url, allow_http=True)) == {"url": "127.0.0.1 did not answer in time."}
        monkeypatch.setattr(access, "PROBE_REQUEST_SECONDS", 30.0)
        monkeypatch.setattr(services, "PROBE_SECONDS", 0.3)
        assert refused(lambda: add(administrator, url, allow_http=True)) == {"url": "127.0.0.1 did not answer in time."}


@pytest.mark.parametrize(
    ("body", "more", "words"),
    [
        (f"<html>{BODY}</html>", {}, "answers, but not as a Redfish service."),
        (json.dumps({"secret": BODY}), {"kind": "application/json"}, "answers, but not as a Redfish service."),
        (json.dumps([BODY]), {"kind": "application/json"}, "answers, but not as a Redfish service."),
        (
            json.dumps({"error": {"message": BODY, "@Message.ExtendedInfo": [{"Message": BODY}]}}),
            {"kind": "application/json", "status": 404},
            "answers, but not as a Redfish service.",
        ),
        (json.dumps({"error": {"message": BODY}}), {"status": 500}, "an error of its own (500)."),
        ("", {"status": 302, "location": f"https://{BODY}/redfish/v1/"}, "points to another address"),
    ],
)  # fmt: skip
def test_what_is_no_redfish_service_is_not_quoted(
    administrator: User, body: str, more: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with serve(body, **more) as url:
        assert words in refused(lambda: add(administrator, url, allow_http=True))["url"]
    assert not Chassis.objects.exists()
    assert BODY not in caplog.text
    assert SECRET not in caplog.text


def test_a_certificate_of_somebody_else_is_not_trusted(client: Client, tmp_path: Path) -> None:
    with serve(BODY, tls=certificate(tmp_path)) as url:
        answer = client.post(
            reverse("api:chassis_list"),
            {"name": "x", "url": url, "username": "administrator", "password": SECRET},
            content_type="application/json",
        )
        problem = answer.json()
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
        assert problem["errors"] == {"fingerprint": UNTRUSTED}
        values = {
            "fingerprint": problem["found_fingerprint"],
            "url": url,
            "name": "x",
            "password": SECRET,
            "username": "a",
        }
        # Trusted, it is still no Redfish service.
        answer = client.post(reverse("api:chassis_list"), values, content_type="application/json")
        assert answer.json()["errors"] == {"url": "127.0.0.1 answers, but not as a Redfish service."}
    with serve(BODY) as url:
        answer = client.post(
            reverse("api:chassis_list"),
            {**values, "url": url.replace("http", "https")},
            content_type="application/json",
        )
        assert "does not answer with TLS" in answer.json()["errors"]["url"]
    assert SECRET not in answer.content.decode()
    assert not Chassis.objects.exists()


@pytest.mark.parametrize("own_ca", [True, False])
def test_an_expired_certificate_is_called_expired_also_by_its_own_ca(
    administrator: User, tmp_path: Path, own_ca: bool
) -> None:
    file = certificate(tmp_path, days=-2)
    ca = file.read_text().partition("-----BEGIN CERTIFICATE-----")
    on = (dt.datetime.now(dt.UTC) - dt.timedelta(days=2)).date().isoformat()
    with serve(BODY, tls=file) as url:
        errors = refused(lambda: add(administrator, url, ca_pem="".join(ca[1:]) if own_ca else ""))
    assert errors == {"ca_pem" if own_ca else "fingerprint": f"The certificate of 127.0.0.1 expired on {on}."}


def test_one_dead_link_does_not_refuse_a_service(administrator: User) -> None:
    root = service_root(Chassis={"@odata.id": f"{ROOT}/Chassis"}, Systems={"@odata.id": f"{ROOT}/Systems"})
    with NonsenseServer({ROOT: root, f"{ROOT}/Systems": collection(f"{ROOT}/Systems", "ComputerSystem")}) as server:
        assert add(administrator, server.url, username="", password="", allow_http=True).pk
    with NonsenseServer({ROOT: root}) as server:
        errors = refused(
            lambda: add(administrator, server.url, name="other", username="", password="", allow_http=True)
        )
    assert errors == {"url": "127.0.0.1 answers, but not as a Redfish service."}


@pytest.mark.process
@pytest.mark.skipif(
    not (SHARED / "serve.py").exists(), reason=f"{SHARED} is missing: published mock-ups are served from it"
)
@pytest.mark.parametrize("basic", [True, False])
def test_a_published_tree_is_a_chassis_with_basic_or_without_a_password(administrator: User, basic: bool) -> None:
    folder = next(iter(sorted((SHARED / "mockups").glob("*/index.json")))).parent
    with serve_mockup(folder, f"root:{SECRET}" if basic else "") as url:
        if basic:
            assert refused(lambda: add(administrator, url, username="root", password="wrong-one", allow_http=True)) == {
                "password": "127.0.0.1 refuses this name and password."
            }
            assert refused(lambda: add(administrator, url, username="", password="", allow_http=True)) == {
                "username": "127.0.0.1 asks for a name and password."
            }
        name, password = ("root", SECRET) if basic else ("", "")
        row = add(administrator, url, username=name, password=password, allow_http=True)
        assert row.address().password == password
        assert mirror(row).inventory_at is not None


def test_an_edit_keeps_the_password_and_asks_the_bmc_only_where_it_must(
    client: Client, administrator: User, simulator: SimulatorProcess
) -> None:
    row = add_process(administrator, simulator)
    address = reverse("fabric:chassis_edit", args=[row.pk])
    page = client.get(address).content.decode()
    assert simulator.password not in page
    assert "keep the stored one" in page
    # The same name and password at the same address, with a name of its own: asked for again.
    values = typed(simulator, name="falcon-9", username="operator", password="")
    assert client.post(address, values).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.username, row.address().password) == ("falcon-9", "operator", simulator.password)
    wrong = client.post(address, typed(simulator, password=SECRET)).content.decode()
    assert "refuses this name and password" in wrong
    assert SECRET not in wrong
    row.refresh_from_db()
    assert row.address().password == simulator.password
    simulator.stop()
    values.update(name="falcon-10", enabled="")
    assert client.post(address, values).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.enabled, row.address().password) == ("falcon-10", False, simulator.password)
    assert "Polling is stopped." in client.get(reverse("fabric:chassis", args=[row.pk])).content.decode()
    values.update(username="administrator")
    assert "does not answer at port" in client.post(address, values).content.decode()


def test_a_stored_password_goes_to_no_other_address(administrator: User, bmc: SimulatorProcess) -> None:
    row = add_process(administrator, bmc)
    with serve(json.dumps({"@odata.type": "#ServiceRoot.v1_0_0.ServiceRoot"}), kind="application/json") as url:
        errors = refused(lambda: services.chassis_edit(person=administrator, chassis=row, url=url, allow_http=True))
    assert errors == {"password": "Enter the password again: the stored one is not sent to another address."}
    row.refresh_from_db()
    assert row.url == bmc.address


def test_another_chassis_does_not_take_over_grants(administrator: User, bmc: SimulatorProcess) -> None:
    row = add_process(administrator, bmc)
    with SimulatorProcess(chassis="falcon-2") as other:
        errors = refused(
            lambda: services.chassis_edit(
                person=administrator, chassis=row, url=other.address, password=other.password,
                fingerprint=other.fingerprint,
            )
        )  # fmt: skip
    assert errors == {"url": "Another chassis answers at this address: add it as one of its own."}


def test_a_save_puts_the_password_under_the_newest_key(
    administrator: User, bmc: SimulatorProcess, settings: Settings
) -> None:
    row = add_process(administrator, bmc)
    old = settings.CREDENTIALS_KEYS
    new = "1" * 43 + "="
    settings.CREDENTIALS_KEYS = [new, *old]
    services.chassis_edit(person=administrator, chassis=row)
    row.refresh_from_db()
    settings.CREDENTIALS_KEYS = [new]
    assert credentials.decrypt(row.password_encrypted) == bmc.password
    kept = row.password_encrypted
    assert services.chassis_edit(person=administrator, chassis=row).password_encrypted == kept
    settings.CREDENTIALS_KEYS = old
    assert (
        "cannot be decrypted"
        in refused(lambda: services.chassis_edit(person=administrator, chassis=row, username="operator"))["password"]
    )
    assert services.chassis_edit(person=administrator, chassis=row, name="renamed").name == "renamed"


def test_a_chassis_is_removed_by_its_name_but_not_under_an_open_operation(
    client: Client, administrator: User, chassis: Chassis, simulator: SimulatorProcess
) -> None:
    address = reverse("fabric:chassis_remove", args=[chassis.pk])
    device = Device.objects.filter(chassis=chassis).first()
    operation = Operation.objects.create(
        kind="detach", chassis=chassis, device=device, summary="Detach it", requested_by_name="bob"
    )
    assert "has not ended" in client.post(address, {"name": "falcon-1"}).content.decode()
    with pytest.raises(Conflict, match="bob asked to 'Detach it'"):
        services.chassis_remove(person=administrator, chassis=chassis)
    operation.state = "done"
    operation.save()
    page = client.get(address).content.decode()
    assert f"{Device.objects.count()} devices" in page
    assert "1 operation<" in page
    assert "This is not the name" in client.post(address, {"name": "falcon-2"}).content.decode()
    assert Chassis.objects.filter(pk=chassis.pk).exists()
    before = simulator.state()["zones"]
    answer = client.post(address, {"name": "falcon-1"}, follow=True)
    assert "falcon-1 was deleted." in answer.content.decode()
    assert "add a chassis" in answer.content.decode()
    assert [model.objects.count() for model in (Chassis, Device, Host, Operation)] == [0, 0, 0, 0]
    assert simulator.state()["zones"] == before
    with pytest.raises(NotFound):
        services.chassis_remove(person=administrator, chassis=chassis)


def test_the_api_adds_changes_and_removes(client: Client, bmc: SimulatorProcess) -> None:
    values = {
        "name": "falcon-1", "url": bmc.address, "username": "administrator", "password": bmc.password,
        "fingerprint": bmc.fingerprint.lower().replace(":", ""),
    }  # fmt: skip
    answer = client.post(reverse("api:chassis_list"), values, content_type="application/json")
    assert answer.status_code == 201
    row = Chassis.objects.get()
    address = reverse("api:chassis", args=[row.pk])
    assert answer["Location"].endswith(address)
    assert answer.json() == {
        "id": row.pk, "name": "falcon-1", "url": bmc.address, "username": "administrator", "ca_pem": "",
        "password_kept": True, "fingerprint": bmc.fingerprint, "enabled": True,
        "shares_uuid": False,
    }  # fmt: skip
    kept = client.get(reverse("api:chassis_settings", args=[row.pk]))
    assert kept.json() == answer.json()
    assert bmc.password not in kept.content.decode()
    changed = client.patch(address, {"name": "left", "enabled": False}, content_type="application/json")
    assert (changed.status_code, changed.json()["name"], changed.json()["enabled"]) == (200, "left", False)
    assert client.get(address).json()["enabled"] is False
    refusal = client.patch(address, {"password": SECRET}, content_type="application/json")
    assert (refusal.status_code, refusal["Content-Type"]) == (400, "application/problem+json")
    assert refusal.json()["errors"] == {"password": "127.0.0.1 refuses this name and password."}
    assert client.post(reverse("api:chassis_list"), {}, content_type="application/json").status_code == 400
    assert client.delete(address).status_code == 204
    assert client.delete(address).status_code == 404
    assert client.patch(address, {}, content_type="application/json").status_code == 404


def test_nobody_but_administrators_may(chassis: Chassis, member: User, tenant: Tenant) -> None:
    Device.objects.filter(chassis=chassis).update(tenant=tenant)
    browser = Client()
    browser.force_login(member)
    values = {"name": "falcon-1", "url": chassis.url}
    for name, arguments in (("chassis_add", []), ("chassis_edit", [chassis.pk]), ("chassis_remove", [chassis.pk])):
        assert browser.post(reverse(f"fabric:{name}", args=arguments), values).status_code == 403
    assert browser.post(reverse("api:chassis_list"), values, content_type="application/json").status_code == 403
    address = reverse("api:chassis", args=[chassis.pk])
    assert browser.patch(address, {"name": "mine"}, content_type="application/json").status_code == 403
    assert browser.delete(address).status_code == 403
    assert browser.get(reverse("api:chassis_settings", args=[chassis.pk])).status_code == 403
    page = browser.get(reverse("fabric:chassis", args=[chassis.pk])).content.decode()
    assert reverse("fabric:chassis_edit", args=[chassis.pk]) not in page
    calls: tuple[Callable[[], object], ...] = (
        lambda: add(member, chassis.url),
        lambda: services.chassis_edit(person=member, chassis=chassis, name="mine"),
        lambda: services.chassis_remove(person=member, chassis=chassis),
        lambda: services.chassis_probe(person=member, address=chassis.address()),
    )
    for call in calls:
        with pytest.raises(Forbidden):
            call()
    assert Chassis.objects.get().name == "falcon-1"


def test_the_pages_have_no_inline_code_and_never_show_a_password_typed_into_the_address(client: Client) -> None:
    for url in (f"https://ada:{SECRET}@bmc.example", f"ada:{SECRET}@bmc.example"):
        answer = client.post(reverse("fabric:chassis_add"), {"name": "x", "url": url, "password": SECRET})
        text = answer.content.decode()
        assert "carries a user or password" in text
        assert SECRET not in text
        assert "style=" not in text
        assert "<style" not in text
        assert "no-store" in answer["Cache-Control"]


def test_one_and_the_same_bmc_is_followed_once(administrator: User, bmc: SimulatorProcess) -> None:
    first = add_process(administrator, bmc)
    # By another name of the same host it is the same chassis.
    again = bmc.address.replace("127.0.0.1", "localhost")
    same = f"This is falcon-1, which exists at {first.url} already: its UUID is the same."
    values = {"password": bmc.password, "fingerprint": bmc.fingerprint, "name": "falcon-2"}
    assert refused(lambda: add(administrator, again, **values)) == {"url": same}
    assert list(Chassis.objects.all()) == [first]
    # Where the address of another leads to it, too.
    other = Chassis.objects.create(name="falcon-2", url="https://127.0.0.1:2", username="administrator")
    assert refused(
        lambda: services.chassis_edit(
            person=administrator, chassis=other, url=again, password=bmc.password, fingerprint=bmc.fingerprint
        )
    ) == {"url": same}


def test_two_services_with_the_same_sample_uuid_are_managed_once_an_administrator_confirms(client: Client) -> None:
    root = service_root(UUID="92384634-2938-2342-8820-489239905423")
    values = {"username": "", "allow_http": "on", "enabled": "on"}
    address = reverse("fabric:chassis_add")
    with NonsenseServer({ROOT: root}) as one, NonsenseServer({ROOT: root}) as two:
        assert "shares_uuid" not in client.get(address).content.decode()
        assert client.post(address, {**values, "name": "one", "url": one.url}).status_code == 302
        page = client.post(address, {**values, "name": "two", "url": two.url}).content.decode()
        assert "its UUID is the same" in page
        assert 'name="shares_uuid"' in page
        assert client.post(address, {**values, "name": "two", "url": two.url, "shares_uuid": "on"}).status_code == 302
    for row in Chassis.objects.all():
        assert "It is the same as" not in client.get(reverse("fabric:chassis", args=[row.pk])).content.decode()
    assert sorted(Chassis.objects.values_list("name", "shares_uuid")) == [("one", False), ("two", True)]


def test_what_turns_out_to_be_the_same_chassis_is_flagged(client: Client, administrator: User) -> None:
    known = {"manufacturer": "Acme", "model": "F1", "serial_number": "77"}
    first = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:2", **known)
    second = Chassis.objects.create(name="falcon-2", url="https://127.0.0.1:3", **known)
    Chassis.objects.create(name="falcon-3", url="https://127.0.0.1:4", manufacturer="Acme", model="F1")
    Chassis.objects.create(name="falcon-4", url="https://127.0.0.1:5", uuid="00000000-0000-0000-0000-000000000000")
    Chassis.objects.create(name="falcon-5", url="https://127.0.0.1:6", uuid="00000000-0000-0000-0000-000000000000")
    for row in Chassis.objects.all():
        page = client.get(reverse("fabric:chassis", args=[row.pk])).content.decode()
        twin = {first.pk: second, second.pk: first}.get(row.pk)
        assert ("It is the same as" in page) == (twin is not None)
        assert twin is None or f'/chassis/{twin.pk}/">{twin.name}</a>' in page
