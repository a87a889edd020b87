"""What HTTP and Redfish ask of every resource: sign-in, roles, ETags, queries, refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from falconweb.testing.processes import SimulatorProcess
from tests.simulator.conftest import PORTS, V1, ZONES, Client, rule_of
from tests.waiting import eventually

SESSIONS = f"{V1}/SessionService/Sessions"


def walk(client: Client) -> dict[str, requests.Response]:
    """Return every resource that can be reached from the service root."""
    seen: dict[str, requests.Response] = {}
    waiting = [f"{V1}/"]
    while waiting:
        uri = waiting.pop()
        if uri in seen:
            continue
        seen[uri] = client.request("GET", uri)
        stack: list[object] = [seen[uri].json()]
        while stack:
            value = stack.pop()
            if isinstance(value, list):
                stack.extend(value)
            elif isinstance(value, dict):
                stack.extend(value.values())
                target = value.get("@odata.id")
                if isinstance(target, str):
                    waiting.append(target.partition("#")[0])
    return seen


@pytest.mark.parametrize("chassis", ["falcon-1", "falcon-2"])
def test_no_link_leads_nowhere_and_every_resource_says_what_it_is(chassis: str) -> None:
    with SimulatorProcess(chassis=chassis) as process:
        found = walk(Client(process))
    assert len(found) > 250
    for uri, reply in found.items():
        assert reply.status_code == 200, uri
        body = reply.json()
        assert body["@odata.id"] == uri
        assert body["@odata.type"].startswith("#")
        if "Members" not in body and uri != f"{V1}/":
            assert body["Id"] == uri.rpartition("/")[2]
        else:
            assert uri == f"{V1}/" or body["Members@odata.count"] == len(body["Members"])
        assert {"ETag", "Allow", "Link", "OData-Version", "Cache-Control"} <= set(reply.headers), uri


def test_the_lab_has_what_the_published_test_bed_has(client: Client) -> None:
    models = []
    for drawer in (1, 2):
        for slot in range(1, 9):
            device = client.get(f"{V1}/Chassis/drawer{drawer}/PCIeDevices/slot{slot}")
            models.append(device.get("Model"))
    v100, p100 = "Tesla V100-PCIE-16GB", "Tesla P100-PCIE-16GB"
    assert models == [
        *[v100] * 4, p100, p100, "ConnectX-5 MCX555A-ECAT", None, *[v100] * 4, "SSDPEDKX040T7", None, None, None,
    ]  # fmt: skip
    function = client.get(f"{V1}/Chassis/drawer2/PCIeDevices/slot5/PCIeFunctions/0")
    assert (function["VendorId"], function["DeviceId"]) == ("0x8086", "0x0A54")


def test_a_session_opens_serves_and_ends(client: Client) -> None:
    body = {"UserName": "operator", "Password": client.process.password}
    opened = client.request("POST", SESSIONS, json=body, auth=("", ""))
    assert opened.status_code == 201
    uri = opened.headers["Location"]
    assert opened.json()["@odata.id"] == uri
    assert opened.json()["Password"] is None
    anew = requests.Session()
    anew.trust_env, anew.verify = False, str(client.process.certificate)
    token = {"X-Auth-Token": opened.headers["X-Auth-Token"]}
    assert anew.get(f"{client.process.address}{V1}/Chassis", headers=token).status_code == 200
    assert anew.delete(client.process.address + uri, headers=token).status_code == 204
    assert anew.get(f"{client.process.address}{V1}/Chassis", headers=token).status_code == 401


def test_a_wrong_password_is_401_everywhere_and_the_root_is_open(client: Client) -> None:
    assert client.request("POST", SESSIONS, json={"UserName": "operator", "Password": "wrong one"}).status_code == 401
    refused = client.request("GET", f"{V1}/Chassis", auth=("operator", "wrong one"))
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic")
    for uri in ("/redfish", f"{V1}/", f"{V1}/odata", f"{V1}/$metadata"):
        assert client.request("GET", uri, auth=("operator", "wrong one")).status_code == 200


def test_an_operator_touches_no_accounts_and_a_viewer_touches_nothing(shared: SimulatorProcess) -> None:
    account = {"UserName": "mallory", "Password": "long enough", "RoleId": "Administrator"}
    for user in ("operator", "viewer"):
        person = Client(shared, user)
        assert person.request("POST", f"{V1}/AccountService/Accounts", json=account).status_code == 403
        grab = {"RoleId": "Administrator"}
        assert person.request("PATCH", f"{V1}/AccountService/Accounts/{user}", json=grab).status_code == 403
        assert person.request("DELETE", f"{V1}/AccountService/Accounts/viewer").status_code == 403
    viewer = Client(shared, "viewer")
    assert viewer.request("PATCH", f"{PORTS}/slot1", json={"ConfiguredWidth": 8}).status_code == 403
    assert viewer.request("POST", f"{PORTS}/slot1/Actions/Port.Reset", json={}).status_code == 403
    assert viewer.request("POST", f"{V1}/Managers/bmc/Actions/Manager.Reset", json={}).status_code == 403


def test_an_account_lives_from_creation_to_deletion(client: Client) -> None:
    accounts = f"{V1}/AccountService/Accounts"
    body = {"UserName": "alice", "Password": "long enough", "RoleId": "ReadOnly"}
    assert client.request("POST", accounts, json=body).status_code == 201
    assert client.request("POST", accounts, json=body).status_code == 409
    assert client.request("GET", f"{V1}/Chassis", auth=("alice", "long enough")).status_code == 200
    changed = client.request(
        "PATCH", f"{accounts}/alice", json={"Password": "another one"}, auth=("alice", "long enough")
    )
    assert changed.status_code == 200
    assert client.request("GET", f"{V1}/Chassis", auth=("alice", "long enough")).status_code == 401
    assert client.request("DELETE", f"{accounts}/alice").status_code == 204
    assert client.request("GET", f"{V1}/Chassis", auth=("alice", "another one")).status_code == 401


def test_expand_brings_members_and_levels_what_is_below_them(client: Client) -> None:
    ports = client.get(f"{PORTS}?$expand=.")
    assert all("LinkStatus" in member for member in ports["Members"])
    assert ports["Members"][0]["Metrics"] == {"@odata.id": f"{PORTS}/H1/Metrics"}
    deeper = client.get(f"{PORTS}?$expand=.($levels=2)")
    assert all("RXBytes" in member["Metrics"] for member in deeper["Members"])
    zone = client.get(f"{ZONES}/hostport1_H1?$expand=~")
    assert zone["Links"]["Endpoints"][0]["Id"] == "hostport1_H1"


def test_select_top_skip_and_only_cut_down(client: Client) -> None:
    device = client.get(f"{V1}/Chassis/drawer1/PCIeDevices/slot1?$select=Model,PCIeInterface/MaxLanes")
    assert device["PCIeInterface"] == {"MaxLanes": 16}
    assert "SerialNumber" not in device
    ports = client.get(f"{PORTS}?$expand=.&$select=LinkStatus")
    assert all("LinkStatus" in one and "Width" not in one for one in ports["Members"])
    page = client.get(f"{PORTS}?$top=3&$skip=2")
    assert [one["@odata.id"].rpartition("/")[2] for one in page["Members"]] == ["H3", "slot1", "slot2"]
    assert page["Members@odata.count"] == 11
    rest = client.get(page["Members@odata.nextLink"])
    assert rest["Members"][0]["@odata.id"].endswith("/slot3")
    assert client.get(f"{V1}/Managers?only")["Id"] == "bmc"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{V1}/?$filter=x", 501),
        (f"{V1}/?$expand=everything", 400),
        (f"{V1}/?$expand=.($levels=99)", 400),
        (f"{V1}/Chassis?$top=-1", 400),
        (f"{V1}/Chassis/falcon?$top=1", 400),
        (f"{V1}/Nowhere", 404),
        (f"{V1}/Chassis/drawer3", 404),
        (f"{ZONES}/hostport9_H9", 404),
        (f"{PORTS}/slot1/Actions/Port.Reset", 405),
    ],
)
def test_a_query_that_cannot_be_answered_is_refused_with_a_sentence(client: Client, path: str, status: int) -> None:
    reply = client.request("GET", path)
    assert reply.status_code == status
    assert rule_of(reply)


def test_methods_and_headers_that_are_not_taken(client: Client) -> None:
    reply = client.request("DELETE", f"{V1}/Chassis/falcon")
    assert reply.status_code == 405
    assert reply.headers["Allow"] == "GET, HEAD, PATCH"
    assert client.request("GET", f"{V1}/", headers={"OData-Version": "4.1"}).status_code == 412
    assert client.request("BREW", f"{V1}/").status_code == 501
    assert client.request("PATCH", f"{ZONES}/hostport1_H3", data="{").status_code == 415
    json_type = {"Content-Type": "application/json"}
    assert client.request("PATCH", f"{ZONES}/hostport1_H3", data="{", headers=json_type).status_code == 400
    assert client.request("PATCH", f"{ZONES}/hostport1_H3", data="[]", headers=json_type).status_code == 400


def test_head_answers_as_get_without_a_body_and_an_unchanged_resource_304(client: Client) -> None:
    uri = f"{ZONES}/hostport1_H1"
    head = client.request("HEAD", uri)
    assert (head.status_code, head.content) == (200, b"")
    etag = head.headers["ETag"]
    assert client.request("GET", uri, headers={"If-None-Match": etag}).status_code == 304
    assert client.request("GET", uri, headers={"If-None-Match": '"other"'}).json()["@odata.etag"] == etag


def test_a_narrower_port_trains_to_its_width_and_a_disabled_one_goes_down(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    assert client.request("PATCH", f"{PORTS}/slot1", json={"ConfiguredWidth": 8}).status_code == 200
    port = eventually(lambda: client.get(f"{PORTS}/slot1"), lambda one: one["LinkStatus"] == "LinkUp")
    assert (port["ActiveWidth"], port["CurrentSpeedGbps"]) == (8, 64)
    assert client.request("PATCH", f"{PORTS}/slot1", json={"LinkState": "Disabled"}).status_code == 200
    assert client.get(f"{PORTS}/slot1")["LinkStatus"] == "LinkDown"
    assert client.request("PATCH", f"{PORTS}/slot1", json={"ConfiguredWidth": 3}).status_code == 400


def test_a_service_may_offer_less() -> None:
    with SimulatorProcess("--no-expand", "--no-sessions", "--no-report") as process:
        client = Client(process)
        root = client.get(f"{V1}/")
        assert root["ProtocolFeaturesSupported"]["ExpandQuery"]["ExpandAll"] is False
        assert "TelemetryService" not in root
        assert client.request("GET", f"{V1}/TelemetryService/MetricReports/All").status_code == 404
        assert client.request("GET", f"{PORTS}?$expand=.").status_code == 501
        body = {"UserName": "administrator", "Password": process.password}
        assert client.request("POST", SESSIONS, json=body).status_code == 401


def test_requests_of_a_client_are_counted(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    client.session.headers["User-Agent"] = "counted"
    for _ in range(3):
        client.get(f"{V1}/Chassis")
    state = fresh.state()
    assert state["requests"]["GET"] == 3
    assert state["max_in_flight"] == {"counted": 1}


def test_a_replaced_certificate_is_served_to_the_next_connection(fresh: SimulatorProcess) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another one")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    action = f"{V1}/CertificateService/Actions/CertificateService.ReplaceCertificate"
    uri = f"{V1}/Managers/bmc/NetworkProtocol/HTTPS/Certificates/1"
    body = {"CertificateString": pem, "CertificateType": "PEM", "CertificateUri": {"@odata.id": uri}}
    client = Client(fresh)
    assert client.request("POST", action, json=body).status_code == 400
    assert client.request("POST", action, json={**body, "CertificateString": pem + private}).status_code == 204
    assert client.get(uri)["CertificateString"] == pem
    with pytest.raises(requests.exceptions.SSLError):
        Client(fresh).get(f"{V1}/")
