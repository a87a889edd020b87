"""Models of the hardware: rows mirror the BMC, `uri` is the resource there; the hardware is authoritative.

Rows that vanish from the BMC are kept and marked with `missing_since`.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from django.db import models
from django.db.models import Q

from accounts.models import Tenant, User
from accounts.visibility import RestrictedQuerySet
from core import credentials
from core.database import natural
from core.language import _, gettext_lazy
from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.types import Dialect
from fabric.bmc.update_service import ManagedPartKind


class GrantedQuerySet(RestrictedQuerySet):
    """Rows that a tenant sees where one of the model's `GRANTED_BY` paths leads to it."""

    def granted_to(self, tenant_id: int) -> Q:
        return reduce(or_, (Q((path, tenant_id)) for path in self.model.GRANTED_BY))


class Chassis(models.Model):
    """One BMC and all that it manages: a Falcon, or any other Redfish service."""

    GRANTED_BY = ("devices__tenant", "hostports__tenant")

    name = models.CharField(max_length=100, unique=True)
    url = models.CharField("BMC address", max_length=300, unique=True)
    username = models.CharField(max_length=100, blank=True)
    password_encrypted = models.TextField(blank=True, editable=False)
    ca_pem = models.TextField("CA certificate (PEM)", blank=True)
    fingerprint = models.CharField("pinned SHA-256 fingerprint", max_length=95, blank=True)
    enabled = models.BooleanField("polled", default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    uri = models.CharField(max_length=300, blank=True)
    uuid = models.CharField(max_length=64, blank=True)
    shares_uuid = models.BooleanField(default=False)  # confirmed to be another chassis than those with the same UUID
    manufacturer = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    serial_number = models.CharField(max_length=200, blank=True)
    part_number = models.CharField(max_length=200, blank=True)
    firmware_version = models.CharField(max_length=200, blank=True)
    redfish_version = models.CharField(max_length=50, blank=True)
    product = models.CharField(max_length=200, blank=True)
    health = models.CharField(max_length=20, blank=True)
    power_state = models.CharField(max_length=20, blank=True)
    dialect = models.CharField(max_length=20, default="none")
    dialect_reason = models.CharField(max_length=300, blank=True)  # the evidence found by the walk, or of the choice
    dialect_choice = models.CharField(max_length=20, blank=True)  # what an administrator chose; '': what walks find
    # How long the BMC takes to show a change that it accepted, s: the longest of late, see fabric.bmc.settling.
    settle_seconds = models.FloatField(null=True, editable=False)
    inventory_revision = models.PositiveIntegerField(default=0)  # +1 whenever something of the walk changed
    inventory_at = models.DateTimeField(null=True, editable=False)
    last_error = models.TextField(blank=True, editable=False)  # one sentence, '' while it answers
    last_error_at = models.DateTimeField(null=True, editable=False)
    walk_progress = models.JSONField(null=True, editable=False)  # of a walk that takes long: fabric.inventory.progress
    walk_limit = models.CharField(max_length=300, blank=True, editable=False)  # what the last walk left out, and why
    reading_limit = models.CharField(max_length=300, blank=True, editable=False)  # which readings are left out
    event_limit = models.CharField(max_length=600, blank=True, editable=False)  # why its events are not read
    # Sign-in: how it last succeeded, and refusals of the stored password (fabric.inventory.access).
    uses_basic = models.BooleanField(default=False, editable=False)
    refused_at = models.DateTimeField(null=True, editable=False)  # the first of the refusals in a row
    refusals = models.PositiveIntegerField(default=0, editable=False)
    next_sign_in_at = models.DateTimeField(null=True, editable=False)  # no try before it

    objects = GrantedQuerySet.as_manager()

    class Meta:
        ordering = [natural("name")]
        verbose_name_plural = "chassis"

    def __str__(self) -> str:
        return self.name

    @property
    def is_composable(self) -> bool:
        """Whether devices can be attached and detached; else it is monitored only."""
        return self.dialect != Dialect.NONE

    @property
    def settling(self) -> str:
        """How long changes take to show, in a sentence; '' where none was seen."""
        if self.settle_seconds is None:
            return ""
        if self.settle_seconds < 0.1:
            return _("Changes show at once, as seen of late.")
        return _("Changes show after up to {seconds:.1f} s, as seen of late.", seconds=self.settle_seconds)

    def set_password(self, password: str) -> None:
        """Store the BMC password, encrypted."""
        self.password_encrypted = credentials.encrypt(password) if password else ""

    def address(self, password: str | None = None) -> BmcAddress:
        """Return the address of the BMC with its password, else the stored one; raises Unavailable without its key."""
        if password is None:
            password = credentials.decrypt(self.password_encrypted) if self.password_encrypted else ""
        trust = CertificateTrust(ca_pem=self.ca_pem, fingerprint=self.fingerprint)
        return BmcAddress(url=self.url, username=self.username, password=password, trust=trust)


class Walk(models.Model):
    """The newest walk of a chassis with all its resources, apart from the chassis' row: it is large and rarely read."""

    chassis = models.OneToOneField(Chassis, primary_key=True, on_delete=models.CASCADE)
    found = models.JSONField(default=dict)  # fabric.bmc.types.Inventory as JSON

    def __str__(self) -> str:
        return f"Walk of {self.chassis}"


class Host(models.Model):
    """A server that devices can be attached to; it may be cabled to several chassis, identified by UUID or serial."""

    GRANTED_BY = ("host_ports__tenant",)

    name = models.CharField(max_length=200)
    identity = models.CharField(max_length=200, unique=True)  # UUID, else manufacturer+serial, else chassis+endpoint
    manufacturer = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    serial_number = models.CharField(max_length=200, blank=True)
    uuid = models.CharField(max_length=64, blank=True)
    power_state = models.CharField(max_length=20, blank=True)
    processor_summary = models.CharField(max_length=300, blank=True)
    memory_gib = models.FloatField(null=True)
    local_gpu_count = models.PositiveIntegerField(default=0)
    health = models.CharField(max_length=20, blank=True)

    objects = GrantedQuerySet.as_manager()

    class Meta:
        ordering = [natural("name")]

    def __str__(self) -> str:
        return self.name


class Part(models.Model):
    """Common fields of every mirrored part of the hardware."""

    chassis = models.ForeignKey(Chassis, on_delete=models.CASCADE, related_name="%(class)ss")
    uri = models.CharField(max_length=400)
    name = models.CharField(max_length=200)
    health = models.CharField(max_length=20, blank=True)
    missing_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


class Approvable(Part):
    """A part with an approved state; a difference from that is drift (see fabric.drift.models)."""

    approved_at = models.DateTimeField(null=True, editable=False)  # None: the state of the next walk is approved

    class Meta:
        abstract = True


class Drawer(Approvable):
    """A drawer; its mode says how host ports share its slots."""

    GRANTED_BY = ("slots__device__tenant", "host_ports__tenant")

    number = models.PositiveIntegerField(default=0)
    mode = models.CharField(max_length=30, default="Unknown")
    approved_mode = models.CharField(max_length=30, blank=True, editable=False)
    model = models.CharField(max_length=200, blank=True)
    serial_number = models.CharField(max_length=200, blank=True)

    objects = GrantedQuerySet.as_manager()

    class Meta:
        ordering = ["chassis", "number", "uri"]
        constraints = [models.UniqueConstraint(fields=["chassis", "uri"], name="drawer_uri")]


class Switch(Part):
    """A switch chip."""

    GRANTED_BY = ("ports__slot__device__tenant", "ports__host_port__tenant")

    drawer = models.ForeignKey(Drawer, null=True, on_delete=models.SET_NULL, related_name="switches")
    manufacturer = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    serial_number = models.CharField(max_length=200, blank=True)
    firmware_version = models.CharField(max_length=200, blank=True)
    total_width = models.PositiveIntegerField(null=True)

    objects = GrantedQuerySet.as_manager()

    class Meta:
        ordering = ["chassis", "uri"]
        verbose_name_plural = "switches"
        constraints = [models.UniqueConstraint(fields=["chassis", "uri"], name="switch_uri")]


class Port(Approvable):
    """A port of a switch, with its link against its capability; speeds are Gb/s one way, whole link."""

    GRANTED_BY = ("slot__device__tenant", "host_port__tenant")

    switch = models.ForeignKey(Switch, null=True, on_delete=models.SET_NULL, related_name="ports")
    port_id = models.CharField(max_length=100, blank=True)
    port_type = models.CharField(max_length=50, blank=True)
    protocol = models.CharField(max_length=50, blank=True)
    link_state = models.CharField(max_length=30, blank=True)
    link_status = models.CharField(max_length=30, blank=True)
    width = models.PositiveIntegerField(null=True)
    active_width = models.PositiveIntegerField(null=True)
    configured_width = models.PositiveIntegerField(null=True)  # the configured maximum of lanes
    speed_gbps = models.FloatField(null=True)
    max_speed_gbps = models.FloatField(null=True)
    metrics_uri = models.CharField(max_length=400, blank=True)
    far_end = models.CharField(max_length=200, blank=True)  # of a link to another switch: its switch and port
    errors = models.JSONField(default=dict)  # PCIeErrors counters of the newest walk
    errors_reset_at = models.DateTimeField(null=True, editable=False)  # when FalconWeb last set them to zero
    approved_type = models.CharField(max_length=50, blank=True, editable=False)
    approved_width = models.PositiveIntegerField(null=True, editable=False)

    objects = GrantedQuerySet.as_manager()

    class Meta:
        ordering = ["chassis", "uri"]
        constraints = [models.UniqueConstraint(fields=["chassis", "uri"], name="port_uri")]


class HostPort(Approvable):
    """A host port: the switch port a host is cabled to, with the zone whose members are attached to that host."""

    GRANTED_BY = ("tenant",)

    # uri is the zone's: one zone a host port
    endpoint_uri = models.CharField(max_length=400)
    drawer = models.ForeignKey(Drawer, null=True, on_delete=models.SET_NULL, related_name="host_ports")
    port = models.OneToOneField(Port, null=True, on_delete=models.SET_NULL, related_name="host_port")
    host = models.ForeignKey(Host, null=True, on_delete=models.SET_NULL, related_name="host_ports")
    tenant = models.ForeignKey(Tenant, null=True, blank=True, on_delete=models.SET_NULL, related_name="host_ports")
    tenant_since = models.DateTimeField(null=True, editable=False)  # older readings are another tenant's
    label = models.CharField(max_length=50)  # 'H1'
    number = models.PositiveIntegerField(default=0)
    approved_host = models.ForeignKey(Host, null=True, editable=False, on_delete=models.SET_NULL, related_name="+")

    objects = GrantedQuerySet.as_manager()

    class Meta:
        ordering = ["chassis", "number", "uri"]
        constraints = [models.UniqueConstraint(fields=["chassis", "uri"], name="host_port_uri")]


class Slot(Part):
    """A slot, empty or not."""

    GRANTED_BY = ("device__tenant",)

    drawer = models.ForeignKey(Drawer, null=True, on_delete=models.SET_NULL, related_name="slots")
    port = models.OneToOneField(Port, null=True, on_delete=models.SET_NULL, related_name="slot")
    number = models.PositiveIntegerField(default=0)
    slot_type = models.CharField(max_length=50, blank=True)
    pcie_type = models.CharField(max_length=20, blank=True)
    lanes = models.PositiveIntegerField(null=True)

    objects = GrantedQuerySet.as_manager()

    class Meta:
        ordering = ["chassis", "drawer__number", "number", "uri"]
        constraints = [models.UniqueConstraint(fields=["chassis", "uri"], name="slot_uri")]


class Device(Approvable):
    """A PCIe device. `host_port` is where the BMC says it is attached; None: attached to no host.

    `other_host_ports` are the others of a device that the BMC has in several zones.
    """

    class Kind(models.TextChoices):
        """The kind of a device."""

        GPU = "gpu", "GPU"
        NVME = "nvme", gettext_lazy("NVMe drive")
        NIC = "nic", "NIC"
        CUSTOM = "custom", gettext_lazy("Custom device")

    GRANTED_BY = ("tenant",)

    slot = models.OneToOneField(Slot, null=True, on_delete=models.SET_NULL, related_name="device")
    host_port = models.ForeignKey(HostPort, null=True, on_delete=models.SET_NULL, related_name="devices")
    other_host_ports = models.ManyToManyField(HostPort, editable=False, related_name="other_devices")
    tenant = models.ForeignKey(Tenant, null=True, blank=True, on_delete=models.SET_NULL, related_name="devices")
    tenant_since = models.DateTimeField(null=True, editable=False)  # older readings are another tenant's
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.CUSTOM)
    manufacturer = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    serial_number = models.CharField(max_length=200, blank=True)
    part_number = models.CharField(max_length=200, blank=True)
    firmware_version = models.CharField(max_length=200, blank=True)
    vendor_id = models.CharField(max_length=20, blank=True)
    device_id = models.CharField(max_length=20, blank=True)
    subsystem_vendor_id = models.CharField(max_length=20, blank=True)
    subsystem_id = models.CharField(max_length=20, blank=True)
    class_code = models.CharField(max_length=20, blank=True)
    pcie_type = models.CharField(max_length=20, blank=True)
    max_pcie_type = models.CharField(max_length=20, blank=True)
    lanes_in_use = models.PositiveIntegerField(null=True)
    max_lanes = models.PositiveIntegerField(null=True)
    memory_bytes = models.BigIntegerField(null=True)
    capacity_bytes = models.BigIntegerField(null=True)
    endpoint_uri = models.CharField(max_length=400, blank=True)
    processor_uri = models.CharField(max_length=400, blank=True)
    approved_host_port = models.ForeignKey(
        HostPort, null=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )

    objects = GrantedQuerySet.as_manager()

    class Meta:
        ordering = ["chassis", "slot__drawer__number", "slot__number", "uri"]
        constraints = [models.UniqueConstraint(fields=["chassis", "uri"], name="device_uri")]

    @property
    def identity(self) -> str:
        """The distinction from another device in the same slot, as far as its BMC reports it."""
        return self.serial_number or self.kind_identity

    @property
    def kind_identity(self) -> str:
        """The identity of its kind: common to all devices of it, different from all others."""
        return f"{self.manufacturer} {self.model} {self.vendor_id}:{self.device_id}".strip()


LeasablePart = Device | HostPort


class ManagedPart(Part):
    """A part with a firmware version, a location LED or a reset; columns are those of `RedfishManagedPart`."""

    class Kind(models.TextChoices):
        """The kind of a part."""

        BMC = ManagedPartKind.BMC.value, "BMC"
        CHASSIS = ManagedPartKind.CHASSIS.value, gettext_lazy("Chassis")
        DRAWER = ManagedPartKind.DRAWER.value, gettext_lazy("Drawer")
        SWITCH = ManagedPartKind.SWITCH.value, gettext_lazy("Switch chip")
        DEVICE = ManagedPartKind.DEVICE.value, gettext_lazy("Device")
        SLOT = ManagedPartKind.SLOT.value, gettext_lazy("Empty slot")
        DRIVE = ManagedPartKind.DRIVE.value, gettext_lazy("Drive")
        HOST = ManagedPartKind.HOST.value, gettext_lazy("Host")
        SOFTWARE = ManagedPartKind.SOFTWARE.value, gettext_lazy("Software")

    GRANTED_BY = ("device__tenant",)

    kind = models.CharField(max_length=10, choices=Kind)
    drawer = models.ForeignKey(Drawer, null=True, on_delete=models.SET_NULL, related_name="managed_parts")
    switch = models.ForeignKey(Switch, null=True, on_delete=models.SET_NULL, related_name="managed_parts")
    device = models.ForeignKey(Device, null=True, on_delete=models.SET_NULL, related_name="managed_parts")
    host = models.ForeignKey(Host, null=True, on_delete=models.SET_NULL, related_name="managed_parts")
    manufacturer = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    serial_number = models.CharField(max_length=200, blank=True)
    version = models.CharField(max_length=200, blank=True)
    software_uri = models.CharField(max_length=400, blank=True)
    is_updateable = models.BooleanField(default=False)
    led_uri = models.CharField(max_length=400, blank=True)
    is_lit = models.BooleanField(null=True)
    power_state = models.CharField(max_length=20, blank=True)
    reset_uri = models.CharField(max_length=400, blank=True)
    reset_types = models.JSONField(default=list)

    objects = GrantedQuerySet.as_manager()

    class Meta:
        ordering = [natural("chassis__name"), "kind", natural("uri")]
        constraints = [models.UniqueConstraint(fields=["chassis", "uri"], name="managed_part_uri")]

    @property
    def label(self) -> str:
        """Its name with its chassis and slot, which a person types to confirm; best read with `device__slot`."""
        slot = self.device.slot if self.device is not None else None
        name = slot.name if slot is not None else self.name
        return name if name == self.chassis.name else f"{self.chassis.name} {name}"


class SavedFilter(models.Model):
    """A named filter of the list of devices; `query` is the page's query string."""

    class SavedFilterQuerySet(models.QuerySet["SavedFilter"]):
        """A person sees their own, and those that administrators share with everybody."""

        def visible_to(self, person: User) -> SavedFilter.SavedFilterQuerySet:
            return self.filter(Q(person=person) | Q(is_shared=True)) if person.is_active else self.none()

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_filters")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1000, blank=True)
    is_shared = models.BooleanField(default=False)

    objects = SavedFilterQuerySet.as_manager()

    class Meta:
        ordering = [natural("name"), "pk"]
        constraints = [models.UniqueConstraint(fields=["person", "name"], name="one_filter_a_name")]

    def __str__(self) -> str:
        return self.name

    @property
    def removal(self) -> str:
        """The name of the button that deletes it, for screen readers."""
        return _("Delete the filter {name}", name=self.name)
