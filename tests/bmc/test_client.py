"""The client keeps to its manners: one session, four requests at a time, and nothing sent to strangers or twice."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.errors import (
    BmcError,
    CertificateRejected,
    ForeignLink,
    RequestRefused,
    ServerFault,
    SignInRefused,
    TaskFailed,
    TimedOut,
    Unreachable,
    WrongAddress,
)
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply, chassis, service_root
from tests.waiting import eventually_in_loop

SESSIONS = f"{ROOT}/SessionService/Sessions"
ONE = f"{ROOT}/Chassis/one"
BASIC = "Basic " + base64.b64encode(b"u:p").decode()


def basic_only(asked: Asked) -> Any:
    return chassis(ONE) if asked.headers.get("Authorization") == BASIC else Reply(401)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 501, 503])
async def test_basic_is_taken_where_no_session_can_be_made(status: int) -> None:
    routes = {
        ROOT: service_root(Chassis={"@odata.id": ONE}), ONE: basic_only, f"POST {SESSIONS}": Reply(status),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client("u", "p") as bmc:
            assert (await bmc.get(ONE)).body["Id"] == "one"
            await bmc.get(ONE)
    assert len(server.paths("POST")) == 1, "one try for a session is enough"


async def test_a_wrong_password_is_said_once_and_never_shown() -> None:
    routes = {
        ROOT: service_root(Chassis={"@odata.id": ONE}), ONE: basic_only, f"POST {SESSIONS}": Reply(401),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client("u", "hunter2") as bmc:
            with pytest.raises(SignInRefused) as refusal:
                await bmc.get(ONE)
    assert "hunter2" not in repr(refusal.value)
    assert "hunter2" not in repr(BmcAddress(url=server.url, username="u", password="hunter2"))


async def test_a_lost_session_is_made_anew_once_and_a_write_follows_it() -> None:
    tokens = iter(f"token{number}" for number in range(9))
    valid: set[str] = set()

    def sign_in(_asked: Asked) -> Reply:
        valid.clear()
        valid.add(token := next(tokens))
        return Reply(201, {}, {"X-Auth-Token": token, "Location": f"{SESSIONS}/{token}"})

    def guarded(asked: Asked) -> Any:
        return chassis(ONE) if asked.headers.get("X-Auth-Token") in valid else Reply(401)

    routes = {ROOT: service_root(), ONE: guarded, f"PATCH {ONE}": guarded, f"POST {SESSIONS}": sign_in}
    with NonsenseServer(routes) as server:
        async with server.client("u", "p") as bmc:
            await bmc.get(ONE)
            valid.clear()
            await asyncio.gather(*(bmc.get(ONE) for _ in range(8)))
            assert len(server.paths("POST")) == 2, "eight requests found the session gone, one signed in"
            valid.clear()
            await bmc.patch(ONE, {"AssetTag": "x"})
            assert len(server.paths("POST")) == 3


async def test_a_write_is_prevented_until_right_before_it() -> None:
    """Signing in may take a minute: a worker that loses its claim meanwhile must not write."""
    signed_in = Reply(201, {}, {"X-Auth-Token": "t", "Location": f"{SESSIONS}/1"})
    asked: list[str] = []

    async def lost() -> None:
        asked.extend(one.method for one in server.asked)
        raise asyncio.CancelledError

    with NonsenseServer({ROOT: service_root(), f"POST {SESSIONS}": signed_in, f"PATCH {ONE}": {}}) as server:
        async with server.client("u", "p", before_write=lost) as bmc:
            with pytest.raises(asyncio.CancelledError):
                await bmc.patch(ONE, {})
        assert asked == ["GET", "POST"]
        assert server.paths("PATCH") == []


async def test_a_resource_that_refuses_every_session_does_not_fill_the_table_of_sessions() -> None:
    routes = {
        ROOT: service_root(), ONE: Reply(401), f"POST {SESSIONS}": Reply(201, {}, {"X-Auth-Token": "t"}),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client("u", "p") as bmc:
            for _ in range(5):
                with pytest.raises(RequestRefused):
                    await bmc.get(ONE)
    assert len(server.paths("POST")) == 2


async def test_redirects_are_followed_within_the_origin_only() -> None:
    with NonsenseServer({ONE: chassis(ONE)}) as stranger:
        routes = {
            ONE: chassis(ONE),
            f"{ROOT}/moved": Reply(308, b"", {"Location": ONE}),
            f"{ROOT}/circle": Reply(302, b"", {"Location": f"{ROOT}/circle"}),
            f"{ROOT}/away": Reply(307, b"", {"Location": f"{stranger.url}{ONE}"}),
            f"PATCH {ROOT}/away": Reply(307, b"", {"Location": f"{stranger.url}{ONE}"}),
            ROOT: service_root(),
            f"POST {SESSIONS}": Reply(307, b"", {"Location": f"{stranger.url}{SESSIONS}"}),
        }
        with NonsenseServer(routes) as server:
            async with server.client("u", "p") as bmc:
                assert (await bmc.get(f"{ROOT}/moved")).body["Id"] == "one"
                with pytest.raises(BmcError, match="circle"):
                    await bmc.get(f"{ROOT}/circle")
                with pytest.raises(ForeignLink):
                    await bmc.get(f"{ROOT}/away")
                with pytest.raises(RequestRefused):
                    await bmc.patch(f"{ROOT}/away", {})
                with pytest.raises(ForeignLink):
                    await bmc.get(f"{stranger.url}{ONE}")
        assert stranger.asked == []


async def test_a_sessions_link_to_a_stranger_gets_no_password() -> None:
    with NonsenseServer({}) as stranger:
        root = service_root(Chassis={"@odata.id": ONE})
        root["Links"] = {"Sessions": {"@odata.id": f"{stranger.url}{SESSIONS}"}}
        with NonsenseServer({ROOT: root, ONE: basic_only}) as server:
            async with server.client("u", "p") as bmc:
                assert (await bmc.get(ONE)).status == 200
        assert stranger.asked == []


async def test_a_connection_that_broke_is_tried_again_for_a_get_and_never_for_a_write() -> None:
    broken = iter([False, True, False, True, True])

    def shaky(_asked: Asked) -> Any:
        return Reply(hang_up=True) if next(broken, True) else chassis(ONE)

    with NonsenseServer({ONE: shaky, f"PATCH {ONE}": shaky}) as server:
        async with server.client() as bmc:
            await bmc.get(ONE)
            await bmc.get(ONE)
            with pytest.raises(Unreachable):
                await bmc.patch(ONE, {})
    assert len(server.paths("PATCH")) == 1


async def test_at_most_four_requests_are_under_way_at_a_time() -> None:
    under_way, most = 0, 0

    def slow(_asked: Asked) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        time.sleep(0.02)
        under_way -= 1
        return chassis(ONE)

    with NonsenseServer({ONE: slow}) as server:
        async with server.client() as bmc:
            await asyncio.gather(*(bmc.get(ONE) for _ in range(40)))
            assert under_way == 0
    assert most == 4
    assert server.connections <= 4, "connections are kept and used again"


async def test_proxies_and_ca_bundles_of_the_environment_play_no_part(
    monkeypatch: pytest.MonkeyPatch, chassis: SimulatorProcess, tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(tmp_path / "empty.pem"))
    trust = CertificateTrust(ca_pem=chassis.certificate.read_text())
    async with BmcClient(BmcAddress(url=chassis.address, trust=trust)) as bmc:
        assert (await bmc.service_root()).body["RedfishVersion"]


async def test_the_pinned_certificate_is_taken_and_any_other_is_not(chassis: SimulatorProcess) -> None:
    async with BmcClient(pinned(chassis)) as bmc:
        assert (await bmc.get(f"{ROOT}/Chassis")).status == 200
    other = "AB:" * 31 + "AB"
    async with BmcClient(BmcAddress(url=chassis.address, trust=CertificateTrust(fingerprint=other))) as bmc:
        with pytest.raises(CertificateRejected) as refusal:
            await bmc.service_root()
    assert (refusal.value.expected, refusal.value.found) == (other, chassis.fingerprint)
    assert chassis.fingerprint in refusal.value.sentence


async def test_a_self_signed_certificate_is_not_trusted_without_being_told(chassis: SimulatorProcess) -> None:
    async with BmcClient(BmcAddress(url=chassis.address, username="administrator", password=chassis.password)) as bmc:
        with pytest.raises(CertificateRejected) as refusal:
            await bmc.get(f"{ROOT}/Chassis")
    assert refusal.value.found == chassis.fingerprint


async def test_a_ca_does_not_excuse_the_wrong_host_name(chassis: SimulatorProcess) -> None:
    # The certificate names 127.0.0.1; the same machine answers at another address of its own.
    url = chassis.address.replace("127.0.0.1", "127.0.0.2")
    async with BmcClient(BmcAddress(url=url, trust=CertificateTrust(ca_pem=chassis.certificate.read_text()))) as bmc:
        with pytest.raises((CertificateRejected, Unreachable)):
            await bmc.service_root()


@pytest.mark.parametrize("fingerprint", ["AB", "zz" * 32, "AB:" * 19 + "AB", "off"])
def test_a_fingerprint_that_is_none_is_refused(fingerprint: str) -> None:
    with pytest.raises(WrongAddress):
        BmcClient(BmcAddress(url="https://127.0.0.1", trust=CertificateTrust(fingerprint=fingerprint)))


def test_a_ca_that_is_none_is_refused() -> None:
    with pytest.raises(WrongAddress):
        BmcClient(BmcAddress(url="https://127.0.0.1", trust=CertificateTrust(ca_pem="-----BEGIN NONSENSE-----")))


@pytest.mark.parametrize(
    "url", ["", "10.0.0.5", "ftp://host", "https://", "https://u:p@host", "file:///etc/passwd", "https://h:x"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(WrongAddress):
        BmcClient(BmcAddress(url=url))


async def test_nobody_at_the_address_is_said_in_one_sentence(chassis: SimulatorProcess) -> None:
    async with BmcClient(BmcAddress(url="https://127.0.0.1:9")) as bmc:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1 does not answer at port 9"):
            await bmc.service_root()
    async with BmcClient(BmcAddress(url="https://no-such-host.invalid")) as bmc:
        with pytest.raises(Unreachable, match=r"no-such-host\.invalid"):
            await bmc.service_root()
    async with BmcClient(BmcAddress(url=chassis.control.replace("http:", "https:"))) as bmc:
        with pytest.raises(Unreachable, match="TLS"):
            await bmc.service_root()


async def test_a_chassis_that_hangs_times_out_and_is_well_again(chassis: SimulatorProcess) -> None:
    async with BmcClient(pinned(chassis), timeout=0.4) as bmc:
        await bmc.get(f"{ROOT}/Chassis")
        fault = chassis.fault("hang")
        began = time.monotonic()
        with pytest.raises(TimedOut):
            await bmc.get(f"{ROOT}/Chassis")
        assert time.monotonic() - began < 20  # it hangs until the fault is ended
        chassis.end_fault(fault)
        await bmc.get(f"{ROOT}/Chassis")


async def test_a_reset_connection_costs_nothing_and_resets_without_end_are_unreachable(
    chassis: SimulatorProcess, bmc: BmcClient
) -> None:
    await bmc.get(f"{ROOT}/Chassis")
    chassis.fault("reset_connections", count=1)
    await bmc.get(f"{ROOT}/Chassis")
    chassis.fault("reset_connections")
    with pytest.raises(Unreachable):
        await bmc.get(f"{ROOT}/Chassis")


async def test_a_server_error_says_so(chassis: SimulatorProcess, bmc: BmcClient) -> None:
    await bmc.get(f"{ROOT}/Chassis")
    chassis.fault("server_error", status=503)
    with pytest.raises(ServerFault) as fault:
        await bmc.get(f"{ROOT}/Chassis")
    assert fault.value.answered == 503


async def test_the_session_is_given_back(chassis: SimulatorProcess) -> None:
    before = chassis.state()["sessions"]
    # No other test may have left one of this account, which would be used again.
    async with BmcClient(pinned(chassis, "operator")) as bmc:
        await bmc.get(f"{ROOT}/Chassis")
        assert chassis.state()["sessions"] == before + 1
    assert chassis.state()["sessions"] == before


async def test_after_a_reboot_the_client_signs_in_again(chassis: SimulatorProcess, bmc: BmcClient) -> None:
    async def last_reset() -> str:
        try:
            return str((await bmc.get(f"{ROOT}/Managers/bmc")).body["LastResetTime"])
        except (Unreachable, TimedOut, ServerFault):
            return ""

    before = await last_reset()
    chassis.fault("bmc_reboot", seconds=0.3)
    # Until then it answers for a moment longer, and then not at all.
    await eventually_in_loop(last_reset, lambda at: at not in {"", before})
    assert (await bmc.get(f"{ROOT}/Managers")).status == 200
    assert chassis.state()["sessions"] == 1


async def test_a_wrong_password_of_a_real_chassis_is_refused(chassis: SimulatorProcess) -> None:
    address = BmcAddress(
        url=chassis.address,
        username="viewer",
        password="not-this-one",
        trust=CertificateTrust(fingerprint=chassis.fingerprint),
    )
    async with BmcClient(address) as bmc:
        with pytest.raises(SignInRefused):
            await discover(bmc)


async def test_a_walk_keeps_to_four_requests_at_a_time(chassis: SimulatorProcess, bmc: BmcClient) -> None:
    inventory = await discover(bmc, everything=True)
    assert len(inventory.slots) == 16
    assert max(chassis.state()["max_in_flight"].values()) <= 4


@pytest.mark.parametrize(
    ("last", "sentence"),
    [
        ({"TaskState": "Completed"}, ""),
        ({"TaskState": ["Completed"]}, ""),
        ({"TaskState": "Exception", "Messages": [{"Message": "slot 3 did not answer"}]}, "slot 3 did not answer"),
        ({"TaskState": "Cancelled"}, "Cancelled"),
        ({"error": {"message": "rolled back"}}, "rolled back"),
    ],
)
async def test_a_task_is_followed_to_its_end(last: dict[str, Any], sentence: str) -> None:
    answers = iter([Reply(202, {"TaskState": "Running"}), Reply(503), Reply(202, b"")])
    monitor = f"{ROOT}/TaskService/TaskMonitors/1"
    routes = {
        f"PATCH {ONE}": Reply(202, {}, {"Location": monitor}), monitor: lambda _asked: next(answers, Reply(200, last)),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            accepted = await bmc.patch(ONE, {})
            if sentence:
                with pytest.raises(TaskFailed, match=sentence):
                    await bmc.finish(accepted)
            else:
                assert (await bmc.finish(accepted)).body == last
    assert len(server.paths()) == 4


ELSEWHERE = "https://bmc.example"


@pytest.mark.parametrize(
    "location",
    [f"{ELSEWHERE}{ROOT}/t", f"{ELSEWHERE}:8443{ROOT}/t", f"http://10.9.9.9{ROOT}/t", "//bmc.example/redfish/v1/t"],
)
async def test_a_monitor_at_another_host_is_read_at_the_address_that_was_entered(location: str) -> None:
    routes = {
        f"PATCH {ONE}": Reply(202, {}, {"Location": location}),
        f"{ROOT}/t": Reply(200, {"TaskState": "Completed", "Id": "7"}),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            assert (await bmc.finish(await bmc.patch(ONE, {}))).body["Id"] == "7"
    assert server.paths() == [f"{ROOT}/t"]


@pytest.mark.parametrize(
    ("location", "monitor"),
    [
        (f"{ELSEWHERE}{ROOT}/t", Reply(404)),
        (f"{ELSEWHERE}{ROOT}/t", Reply(403)),
        (f"{ELSEWHERE}{ROOT}/t", Reply(200, b"<html>")),
        (f"{ROOT}/t", Reply(302, b"", {"Location": f"{ELSEWHERE}{ROOT}/t"})),
        (f"{ELSEWHERE}/tasks/7", None),
        (f"{ELSEWHERE}/redfish/v1/../../tasks/7", None),
        ("ftp://bmc.example/redfish", None),
    ],
)
async def test_a_monitor_that_is_only_elsewhere_leaves_the_answer_unfinished(
    location: str, monitor: Reply | None
) -> None:
    routes = {f"PATCH {ONE}": Reply(202, {}, {"Location": location}), f"{ROOT}/t": monitor or Reply(500)}
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            assert (await bmc.finish(await bmc.patch(ONE, {}))).status == 202
    assert server.paths() == ([f"{ROOT}/t"] if monitor else [])


async def test_the_outcome_of_a_task_at_another_host_is_believed_where_it_is_read_here() -> None:
    refusal = Reply(409, {"error": {"message": "Slot 3 is in use."}})
    routes = {f"PATCH {ONE}": Reply(202, {}, {"Location": f"{ELSEWHERE}{ROOT}/t"}), f"{ROOT}/t": refusal}
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            with pytest.raises(RequestRefused, match="in use"):
                await bmc.finish(await bmc.patch(ONE, {}))


async def test_a_session_whose_address_names_another_host_is_ended_here() -> None:
    session = f"{SESSIONS}/1"
    routes = {
        ROOT: service_root(), ONE: {}, f"DELETE {session}": Reply(204, b""),
        f"POST {SESSIONS}": Reply(201, {}, {"X-Auth-Token": "t", "Location": f"{ELSEWHERE}{session}"}),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client("u", "p") as bmc:
            await bmc.get(ONE)
        assert (server.asked[-1].method, server.asked[-1].path) == ("DELETE", session)


async def test_a_session_that_a_bmc_fails_to_delete_is_used_by_the_next_client() -> None:
    session, deletions = f"{SESSIONS}/1", iter([Reply(503)])
    routes = {
        ROOT: service_root(), ONE: {}, f"DELETE {session}": lambda _asked: next(deletions, Reply(204, b"")),
        f"POST {SESSIONS}": Reply(201, {}, {"X-Auth-Token": "t", "Location": session}),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        for _client in range(2):
            async with server.client("u", "p") as bmc:
                await bmc.get(ONE)
        assert (len(server.paths("POST")), len(server.paths("DELETE"))) == (1, 2)


async def test_a_task_without_end_times_out() -> None:
    routes = {
        f"PATCH {ONE}": Reply(202, {}, {"Location": f"{ROOT}/t"}), f"{ROOT}/t": Reply(202, {"TaskState": "Running"}),
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            with pytest.raises(TimedOut):
                await bmc.finish(await bmc.patch(ONE, {}), timeout=0.3)


def test_tls_is_never_switched_off() -> None:
    from fabric.bmc.transport import client_tls

    context = client_tls(CertificateTrust())
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


async def test_nothing_is_sent_to_where_clouds_keep_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]
    # Others, such as who tidies up after a test, connect by names too.
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", lambda *_, **__: listed)
        for host in ("bmc.example", "169.254.169.254", "100.100.100.200", "[fe80::1]", "[fd00:ec2::254]"):
            async with BmcClient(BmcAddress(url=f"http://{host}")) as bmc:
                with pytest.raises(Unreachable, match=r"Nothing is sent there\.$"):
                    await bmc.get(ROOT)
