"""Typed, frozen inventory: the interface between the Redfish client and the rest of the site.

Every object keeps its identifying fields (`id`, `name`, serial and part numbers, vendor and device IDs) exactly as the
service gave them; numbers that a service gives as text or null become None here, never zero. URIs are paths on the BMC
(`/redfish/v1/...`) and are the keys by which objects refer to each other.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from fabric.bmc.gaps import ProfileGap
from fabric.bmc.update_service import ManagedPartKind, RedfishUpdateService


class DeviceKind(StrEnum):
    """The kind of a device, from functions, processors, drives and adapters linked to the PCIe device."""

    GPU = "gpu"
    NVME = "nvme"
    NIC = "nic"
    CUSTOM = "custom"


class ComponentKind(StrEnum):
    """The kind of a component that is no PCIe device, or that represents a part of one."""

    POWER_SUPPLY = "power_supply"
    BATTERY = "battery"
    PROCESSOR = "processor"
    MEMORY = "memory"
    MEMORY_CHUNK = "memory_chunk"  # a range of a memory domain, such as that of a CXL logical device
    DRIVE = "drive"
    CABLE = "cable"


class DrawerMode(StrEnum):
    """How host ports share a drawer's slots; UNKNOWN where the BMC does not report it."""

    STANDARD_ONE_HOST = "StandardOneHost"
    STANDARD_TWO_HOSTS = "StandardTwoHosts"
    ADVANCED = "Advanced"
    UNKNOWN = "Unknown"


class Dialect(StrEnum):
    """The mechanism by which a BMC attaches devices, found by probing; NONE: monitored only."""

    ZONE_PATCH = "zone_patch"
    ZONE_ACTIONS = "zone_actions"
    ZONE_POST = "zone_post"
    CONNECTIONS = "connections"
    CONNECTION_PATCH = "connection_patch"
    RESOURCE_BLOCKS = "resource_blocks"
    BLOCK_PATCH = "block_patch"
    SYSTEM_POST = "system_post"
    COMPOSE = "compose"
    PORT_LINKS = "port_links"
    NONE = "none"


class ProblemKind(StrEnum):
    """Why a resource is missing from, or incomplete in, an inventory."""

    DEAD_LINK = "dead_link"  # 404 or 410 behind a link
    REFUSED = "refused"  # 401 or 403
    MALFORMED = "malformed"  # not a JSON object, or a property of the wrong type where it matters
    SERVER_ERROR = "server_error"  # 5xx
    FOREIGN_LINK = "foreign_link"  # a link to another address; never followed, so that no credential is sent there
    UNREACHABLE = "unreachable"  # timeout, reset or refused connection during the walk
    INCOMPLETE = "incomplete"  # the walk reached a bound: more is there than was read


class InventoryProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One resource that could not be read correctly; `sentence` is for users."""

    uri: str
    kind: ProblemKind
    sentence: str
    status: int | None = None
    referrer: str = ""


class RedfishResource(msgspec.Struct, frozen=True, kw_only=True):
    """The common properties of listed Redfish resources."""

    uri: str
    name: str
    id: str | int | float | None = None
    state: str = ""  # Status.State
    health: str = ""  # Status.Health


class RedfishChassis(RedfishResource, frozen=True, kw_only=True):
    """A Chassis that is not a drawer."""

    chassis_type: str = ""
    manufacturer: str = ""
    model: str = ""
    serial_number: str = ""
    part_number: str = ""
    sku: str = ""
    uuid: str = ""
    power_state: str = ""
    location: str = ""
    contained_by: str = ""  # uri of the containing chassis


class RedfishDrawer(RedfishChassis, frozen=True, kw_only=True):
    """A Chassis of ChassisType Drawer (or Sled/Module that has PCIe slots inside another chassis)."""

    number: int = 0  # 1-based position, 0 where unknown
    mode: DrawerMode = DrawerMode.UNKNOWN
    allowed_modes: tuple[DrawerMode, ...] = ()


class RedfishSlot(RedfishResource, frozen=True, kw_only=True):
    """A PCIe slot: PCIeDevice.Slot, or a member of PCIeSlots. `uri` may carry a fragment."""

    chassis_uri: str = ""
    number: int = 0  # 1-based within its chassis or drawer
    slot_type: str = ""
    pcie_type: str = ""  # 'Gen4'
    lanes: int | None = None
    hot_pluggable: bool | None = None
    occupied: bool = False
    device_uri: str = ""
    port_uri: str = ""  # the switch port behind the slot, where known


class RedfishDevice(RedfishResource, frozen=True, kw_only=True):
    """A PCIe device that is present."""

    kind: DeviceKind = DeviceKind.CUSTOM
    chassis_uri: str = ""
    slot_uri: str = ""
    manufacturer: str = ""
    model: str = ""
    serial_number: str = ""
    part_number: str = ""
    firmware_version: str = ""
    vendor_id: str = ""  # '0x10DE', as given
    device_id: str = ""
    subsystem_vendor_id: str = ""
    subsystem_id: str = ""
    class_code: str = ""
    pcie_type: str = ""  # in use
    max_pcie_type: str = ""
    lanes_in_use: int | None = None
    max_lanes: int | None = None
    ready_to_remove: bool | None = None
    function_uris: tuple[str, ...] = ()
    processor_uris: tuple[str, ...] = ()
    endpoint_uris: tuple[str, ...] = ()
    port_uri: str = ""  # the switch port that it is connected to, where known
    block_uri: str = ""  # the resource block it is in, where there is one
    capacity_bytes: int | None = None  # drives
    memory_bytes: int | None = None  # GPUs


class RedfishFunction(RedfishResource, frozen=True, kw_only=True):
    """A PCIe function of a device; IDs are hex text as given."""

    device_uri: str = ""
    vendor_id: str = ""
    device_id: str = ""
    subsystem_vendor_id: str = ""
    subsystem_id: str = ""
    revision_id: str = ""
    class_code: str = ""
    device_class: str = ""
    function_type: str = ""


class RedfishSwitch(RedfishResource, frozen=True, kw_only=True):
    """A PCIe (or other) switch chip of a fabric."""

    fabric_uri: str = ""
    switch_type: str = ""
    manufacturer: str = ""
    model: str = ""
    serial_number: str = ""
    part_number: str = ""
    firmware_version: str = ""
    total_width: int | None = None
    chassis_uri: str = ""


class RedfishPort(RedfishResource, frozen=True, kw_only=True):
    """A port of a switch, adapter or system. Speeds are Gb/s of the whole link, one way (x16 Gen 4 = 256)."""

    parent_uri: str = ""  # the switch, adapter, controller or system it belongs to
    switch_uri: str = ""
    port_id: str = ""
    port_type: str = ""
    protocol: str = ""
    link_state: str = ""  # requested: Enabled, Disabled
    link_status: str = ""  # actual: LinkUp, Starting, Training, LinkDown, NoLink
    width: int | None = None
    active_width: int | None = None
    configured_width: int | None = None
    speed_gbps: float | None = None
    max_speed_gbps: float | None = None
    endpoint_uris: tuple[str, ...] = ()
    device_uris: tuple[str, ...] = ()
    metrics_uri: str = ""
    far_end: str = ""  # of a link to another switch: the names of that switch and its port


class RedfishPortMetrics(RedfishResource, frozen=True, kw_only=True):
    """Counters of a port at the time of the walk; `errors` is PCIeErrors as given, numbers only."""

    port_uri: str = ""
    rx_bytes: int | None = None
    tx_bytes: int | None = None
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    reset_target: str = ""  # URI of #RedfishPortMetrics.ResetMetrics


class RedfishZone(RedfishResource, frozen=True, kw_only=True):
    """A zone; membership of its endpoints is attachment. `etag` is that of the walk."""

    fabric_uri: str = ""
    zone_type: str = ""
    etag: str = ""
    endpoint_uris: tuple[str, ...] = ()


class RedfishEndpoint(RedfishResource, frozen=True, kw_only=True):
    """An end of a fabric path: a host (initiator) or a device (target)."""

    fabric_uri: str = ""
    etag: str = ""
    protocol: str = ""
    role: str = ""  # EntityRole: Initiator, Target, Both
    entity_type: str = ""
    entity_uris: tuple[str, ...] = ()
    port_uris: tuple[str, ...] = ()
    zone_uris: tuple[str, ...] = ()


class RedfishConnection(RedfishResource, frozen=True, kw_only=True):
    """A Connection of a fabric."""

    fabric_uri: str = ""
    connection_type: str = ""
    initiator_uris: tuple[str, ...] = ()
    target_uris: tuple[str, ...] = ()


class RedfishVirtualSwitch(RedfishResource, frozen=True, kw_only=True):
    """A virtual CXL switch: what the host at an upstream port reaches by bridges (vPPBs) to other ports."""

    port_uri: str = ""  # the upstream port
    bridges_uri: str = ""  # the collection of its bridges
    endpoint_uris: tuple[str, ...] = ()
    bound_uris: tuple[str, ...] = ()  # the ports to which its bridges are bound


# The types of the block of a host.
HOST_BLOCK_TYPES = frozenset({"ComputerSystem", "Compute"})


class RedfishResourceBlock(RedfishResource, frozen=True, kw_only=True):
    """A block of the CompositionService."""

    block_types: tuple[str, ...] = ()
    composition_state: str = ""
    system_uris: tuple[str, ...] = ()  # those composed of it
    own_system_uris: tuple[str, ...] = ()  # those in it
    zone_uris: tuple[str, ...] = ()
    device_uris: tuple[str, ...] = ()  # the PCIe devices in it


class RedfishSystem(RedfishResource, frozen=True, kw_only=True):
    """A ComputerSystem: a host server, where the BMC knows it."""

    system_type: str = ""
    manufacturer: str = ""
    model: str = ""
    serial_number: str = ""
    uuid: str = ""
    host_name: str = ""
    power_state: str = ""
    processor_summary: str = ""
    processor_count: int | None = None
    memory_gib: float | None = None
    local_gpu_count: int = 0
    bios_version: str = ""
    endpoint_uris: tuple[str, ...] = ()
    block_uris: tuple[str, ...] = ()  # the resource blocks assigned to it
    lists_blocks: bool = False  # it has that list, though it may be empty
    takes_blocks: bool = False  # it offers AddResourceBlock


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of a sensor in its own unit; None where null, absent or not a number."""

    lower_fatal: float | None = None
    lower_critical: float | None = None
    lower_caution: float | None = None
    upper_caution: float | None = None
    upper_critical: float | None = None
    upper_fatal: float | None = None


class RedfishSensor(RedfishResource, frozen=True, kw_only=True):
    """A Sensor, or a member of the older Thermal and Power resources (then `uri` carries a fragment).

    `reading` and `thresholds` are in `units`: the BMC's value times `factor`, plus `zero` (fabric.bmc.sensors).
    """

    chassis_uri: str = ""
    reading_type: str = ""
    reading: float | None = None
    units: str = ""
    factor: float = 1.0
    zero: float = 0.0
    physical_context: str = ""
    related_uris: tuple[str, ...] = ()
    thresholds: Thresholds = Thresholds()
    copy_of: str = ""  # URI of the same sensor in the list of a part, '' where it is no copy


class RedfishFan(RedfishResource, frozen=True, kw_only=True):
    """A Fan of ThermalSubsystem or of the older Thermal."""

    chassis_uri: str = ""
    speed_percent: float | None = None
    speed_rpm: float | None = None
    sensor_uri: str = ""
    location: str = ""


class RedfishComponent(RedfishResource, frozen=True, kw_only=True):
    """A power supply, battery, processor, memory, drive or cable; `uri` carries a fragment in the older Power."""

    kind: ComponentKind
    holder_uri: str = ""  # the chassis or system that it is in
    device_uri: str = ""  # the PCIe device that it is, or is a part of
    variety: str = ""  # 'CPU', 'DDR4', 'SSD', as the service names it
    manufacturer: str = ""
    model: str = ""
    serial_number: str = ""
    part_number: str = ""
    firmware_version: str = ""
    location: str = ""
    capacity_bytes: int | None = None
    capacity_watts: float | None = None
    speed_mhz: float | None = None
    speed_gbps: float | None = None
    cores: int | None = None
    end_uris: tuple[str, ...] = ()  # of a cable


class RedfishMetrics(RedfishResource, frozen=True, kw_only=True):
    """EnvironmentMetrics, ProcessorMetrics and the like: what is read of them, and of which sensors they have excerpts.

    `pointers` are JSON pointers without the leading slash.
    """

    owner_uri: str = ""  # the resource that they are of
    pointers: tuple[str, ...] = ()
    sensor_uris: tuple[str, ...] = ()


class RedfishLogService(RedfishResource, frozen=True, kw_only=True):
    """A RedfishLogService and where its entries are."""

    parent_uri: str = ""
    entries_uri: str = ""
    overwrite_policy: str = ""
    max_records: int | None = None


class RedfishManagedPart(RedfishResource, frozen=True, kw_only=True):
    """A part with a firmware version, a location LED or a reset; `uri` of a device is that of its PCIeDevice."""

    kind: ManagedPartKind
    manufacturer: str = ""
    model: str = ""
    serial_number: str = ""
    version: str = ""
    software_uri: str = ""  # its member of the firmware inventory, '' where there is none
    is_updateable: bool = False
    led_uri: str = ""  # the resource that has its LED, '' for none
    is_lit: bool | None = None
    power_state: str = ""
    reset_uri: str = ""  # the resource that offers its reset, '' for none
    reset_types: tuple[str, ...] = ()  # as its service lists them; () also where it lists them elsewhere
    chassis_uri: str = ""  # itself, or the chassis that it is in


class RedfishService(msgspec.Struct, frozen=True, kw_only=True):
    """The service root: the identity and the features of the service."""

    name: str = ""
    vendor: str = ""
    product: str = ""
    redfish_version: str = ""
    uuid: str = ""
    firmware_version: str = ""  # of the first Manager
    manager_model: str = ""
    expand: bool = False
    select: bool = False
    filter: bool = False
    event_stream_uri: str = ""  # '' where there is none
    metric_report_uris: tuple[str, ...] = ()


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one walk of a service. Lists are in order of URI, numbers as numbers (slot2, slot10)."""

    service: RedfishService = RedfishService()
    dialect: Dialect = Dialect.NONE
    dialect_reason: str = ""  # a sentence: the evidence for the dialect
    dialect_known: bool = True  # False: the evidence could not be read for now
    chassis: tuple[RedfishChassis, ...] = ()
    drawers: tuple[RedfishDrawer, ...] = ()
    slots: tuple[RedfishSlot, ...] = ()
    devices: tuple[RedfishDevice, ...] = ()
    functions: tuple[RedfishFunction, ...] = ()
    switches: tuple[RedfishSwitch, ...] = ()
    ports: tuple[RedfishPort, ...] = ()
    port_metrics: tuple[RedfishPortMetrics, ...] = ()
    zones: tuple[RedfishZone, ...] = ()
    endpoints: tuple[RedfishEndpoint, ...] = ()
    connections: tuple[RedfishConnection, ...] = ()
    virtual_switches: tuple[RedfishVirtualSwitch, ...] = ()
    resource_blocks: tuple[RedfishResourceBlock, ...] = ()
    systems: tuple[RedfishSystem, ...] = ()
    sensors: tuple[RedfishSensor, ...] = ()
    fans: tuple[RedfishFan, ...] = ()
    components: tuple[RedfishComponent, ...] = ()
    metrics: tuple[RedfishMetrics, ...] = ()
    log_services: tuple[RedfishLogService, ...] = ()
    managed_parts: tuple[RedfishManagedPart, ...] = ()
    update_service: RedfishUpdateService | None = None
    problems: tuple[InventoryProblem, ...] = ()
    gaps: tuple[ProfileGap, ...] | None = None  # what it lacks of a profile; None: not judged
