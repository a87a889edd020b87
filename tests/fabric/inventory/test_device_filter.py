"""The words of a filter of devices: what they keep, for whom, and what is said of wrong ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest
from django.utils import timezone, translation

from accounts.models import Role, Tenant, User
from core.errors import Invalid
from fabric.drift.models import Drift
from fabric.inventory import device_filter
from fabric.inventory.device_filter import LiveValues, parse_filter
from fabric.inventory.models import Chassis, Device, Host, HostPort, Port, Slot
from fabric.inventory.selectors import device_rows
from fabric.topology.selectors import fabric_view

pytestmark = pytest.mark.django_db


@pytest.fixture
def administrator() -> User:
    return User.objects.create_superuser("ada", "", "x")


@pytest.fixture
def vision(administrator: User) -> Tenant:
    """Two chassis with three GPUs and a drive: 1 hot and held by vision on its host, 2 by speech, 3 free, 4 missing."""
    tenants = [Tenant.objects.create(name=name) for name in ("vision", "speech")]
    for name in ("falcon-1", "falcon-10"):
        Chassis.objects.create(name=name, url=f"https://127.0.0.1:{len(name)}", enabled=False)
    first, other = Chassis.objects.all()
    ports = [
        HostPort.objects.create(
            chassis=first, uri=f"/h{name}", name=name, endpoint_uri=f"/e{name}", label=name, tenant=tenant,
            host=Host.objects.create(name=f"node-{name}", identity=name),
        )
        for name, tenant in zip("ab", tenants, strict=True)
    ]  # fmt: skip
    for number, (chassis, kind, model, tenant, port) in enumerate(
        (
            (first, "gpu", "Tesla V100", tenants[0], ports[0]),
            (first, "gpu", "Tesla A100", tenants[1], ports[1]),
            (first, "gpu", "Tesla V100", None, None),
            (other, "nvme", "PM1733", None, None),
        ),
        start=1,
    ):
        link = Port.objects.create(chassis=chassis, uri=f"/p{number}", name=f"P{number}")
        slot = Slot.objects.create(chassis=chassis, uri=f"/s{number}", name=f"S{number}", port=link, number=number)
        Device.objects.create(
            chassis=chassis, uri=f"/d{number}", name=f"Device {number}", kind=kind, model=model, tenant=tenant,
            host_port=port, slot=slot, vendor_id="0x10DE", serial_number=f"SN:{number}",
            missing_since=timezone.now() if number == 4 else None,
        )  # fmt: skip
    return tenants[0]


@pytest.fixture
def readings(vision: Tenant) -> Iterator[None]:
    def read(chassis: Collection[int]) -> LiveValues:
        by_name = {one.name: one for one in Device.objects.filter(chassis__in=chassis).select_related("slot")}
        return {
            "temp": {by_name["Device 1"].pk: 85.0, by_name["Device 2"].pk: 60.0},
            "use": {by_name["Device 3"].pk: 0.0},
            "traffic": {by_name["Device 2"].slot.port_id: 12.5},
        }

    sources, device_filter._live_value_sources = device_filter._live_value_sources, []
    device_filter.register_live_values(read)
    yield
    device_filter._live_value_sources = sources


def found(person: User, text: str) -> str:
    """Return the numbers of the devices that a filter keeps."""
    return "".join(sorted(row.name[-1] for row in device_rows(person, search=text)))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", "1234"),
        ("kind:gpu", "123"),
        ("KIND:NVMe", "4"),
        ("kind:gpu free", "3"),
        ("free", "3"),
        ("state:attached", "12"),
        ("detached", "34"),
        ("assigned", "12"),
        ("missing", "4"),
        ("unassigned missing", "4"),
        ("drifted", "2"),
        ("model:v100", "13"),
        ("model:V100 detached", "3"),
        ('model:"Tesla V100"', "13"),
        ("chassis:falcon-1", "123"),
        ("chassis:falcon-*", "1234"),
        ("chassis:*-10", "4"),
        ("host:node-a", "1"),
        ("host:node", ""),
        ("tenant:vision", "1"),
        ("temp>80", "1"),
        ("temp<=60", "2"),
        ("use>=0", "3"),
        ("traffic>1 kind:gpu", "2"),
        ("temp>-1 temp<70", "2"),
        ("tesla v100", "13"),
        ('"tesla v100" node-a', "1"),
        ("10de", "1234"),
        ('"SN:3"', "3"),
        ("10de: free", ""),
        ('"free"', ""),
        ("falcon-10", "4"),
        ("\0 drive \0", "4"),
        ('"', ""),
        ('""', "1234"),
    ],
)
def test_words_keep_what_they_say(administrator: User, readings: None, text: str, numbers: str) -> None:
    for number, kind in ((1, "port"), (2, "attachment")):
        device = Device.objects.get(name=f"Device {number}")
        Drift.objects.create(
            chassis=device.chassis, kind=kind, uri=device.uri, device=device, what="x", noticed_at=timezone.now()
        )
    assert found(administrator, text) == numbers
    views = fabric_view(administrator, search=text)
    shown = [slot.device for one in views for drawer in one.drawers for slot in drawer.slots if slot.device]
    assert "".join(sorted(one.name[-1] for one in shown)) == numbers


@pytest.mark.usefixtures("vision")
@pytest.mark.parametrize("text", ["kind:nvme", 'kind:"NVMe drive"', "kind:NVMe-Laufwerk", '"nvme drive"'])
def test_a_filter_keeps_the_same_in_each_language(administrator: User, text: str) -> None:
    with translation.override("de"):
        assert found(administrator, text) == "4"


def test_a_tenant_finds_its_own_and_learns_nothing_by_words(vision: Tenant, readings: None) -> None:
    bob = User.objects.create_user("bob", "", "x", role=Role.USER, tenant=vision)
    for text in ("", "kind:gpu", "assigned", "host:node-a", "temp>0", "chassis:falcon-1", "node-a"):
        assert found(bob, text) == "1", text
    # Attached to a host port of another tenant: its host is not named.
    Device.objects.filter(name="Device 1").update(host_port=HostPort.objects.get(label="b"))
    for text in ("host:node-b", "node-b", "tenant:speech", "free", "temp<70", "traffic>0", "chassis:falcon-10"):
        assert found(bob, text) == "", text
    assert found(bob, "attached") == "1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("foo:bar", 'Unknown word "foo:". Known: kind:, model:, chassis:, host:, tenant:, state:, temp>, use>,'),
        ("power>3", 'Unknown word "power>".'),
        ("kind:", 'Give a value after "kind:".'),
        ('host:""', 'Give a value after "host:".'),
        ("kind:tpu", 'Unknown kind "tpu". Known: gpu, nvme, nic and custom.'),
        ("kind>gpu", 'Write "kind:…".'),
        ("temp:80", 'Compare it with a number: "temp>80".'),
        ("temp>hot", '"hot" is no number: write "temp>80".'),
        ("temp>1e999", '"1e999" is no number'),
        ("temp>٣", "is no number"),
        ("x " * 101, "A filter has at most 200 letters."),
        ("state:broken", 'Unknown state "broken". Known: free, attached,'),
    ],
)
def test_a_wrong_word_is_named_with_those_that_there_are(text: str, sentence: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_filter(text)
    assert sentence in raised.value.sentence
