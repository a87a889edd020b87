"""Firmware: the inventory of its versions, and the update service, by an image's URI or an image that is pushed.

An image of the simulator begins with `FALCON-FIRMWARE 2.15.0`; the last part of an image's URI, which is never
fetched, has its version: `https://images.example/falcon-2.15.0.bin`. Anything else is refused by the task.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial

from simulator.errors import (
    RedfishError,
    no_operation,
    parameter_missing,
    property_error,
    property_refused,
    property_value,
)
from simulator.faults import FaultRequest
from simulator.odata import V1, Body, identity, link, references
from simulator.resources.network import BMC
from simulator.resources.services import task_accepted
from simulator.service import Falcon
from simulator.state import SWITCHES
from simulator.tasks import BmcTask
from simulator.tree import MANAGE, AuthenticatedRequest, Reply, ResourceNode, WriteMethod

SERVICE = f"{V1}/UpdateService"
INVENTORY = f"{SERVICE}/FirmwareInventory"
SIMPLE = f"{SERVICE}/Actions/UpdateService.SimpleUpdate"
PUSH, MULTIPART = f"{SERVICE}/update", f"{SERVICE}/update-multipart"
MAX_IMAGE_BYTES = 64 * 2**20
UPDATE_SECONDS = 3.0
UPDATE_STEPS = 10
REBOOT_SECONDS = 2.0
VERSION = re.compile(r"\d[\w.-]*")
HEAD = re.compile(rb"FALCON-FIRMWARE (\d[\w.-]*)\s")


def register(falcon: Falcon) -> None:
    """Add the update service with its inventory."""
    tree = falcon.tree
    tree.resource(SERVICE, partial(_service, falcon), PATCH=WriteMethod(partial(_change, falcon), MANAGE))
    tree.objects(INVENTORY, "SoftwareInventory", "Firmware Inventory", partial(_parts, falcon), partial(_node, falcon))
    tree.action(SIMPLE, partial(_simple, falcon))
    push = WriteMethod(partial(_pushed, falcon), MANAGE, is_upload=True)
    tree.add(ResourceNode(PUSH if falcon.options.plain_push else MULTIPART, None, {"POST": push}))


def _service(falcon: Falcon) -> Body:
    return {
        **identity(SERVICE, "UpdateService", "Update Service"),
        "ServiceEnabled": True,
        "Status": {"State": "Enabled", "Health": "OK"},
        **(
            {"HttpPushUri": PUSH, "HttpPushUriTargets": falcon.push_targets}
            if falcon.options.plain_push
            else {"MultipartHttpPushUri": MULTIPART}
        ),
        "MaxImageSizeBytes": MAX_IMAGE_BYTES,
        "FirmwareInventory": link(INVENTORY),
        "Actions": {
            "#UpdateService.SimpleUpdate": {
                "target": SIMPLE,
                "TransferProtocol@Redfish.AllowableValues": ["HTTP", "HTTPS"],
            }
        },
    }


async def _change(falcon: Falcon, call: AuthenticatedRequest) -> Reply:
    """Set what the next image that is pushed without a form is for."""
    if not call.body:
        raise no_operation()
    for key, value in call.body.items():
        if key != "HttpPushUriTargets" or not falcon.options.plain_push:
            raise property_refused(key, _service(falcon))
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise property_value(key, value)
    falcon.push_targets = call.body["HttpPushUriTargets"]
    return Reply(200, _service(falcon))


def _parts(falcon: Falcon) -> dict[str, str]:
    """Return what has firmware, by the Id in the inventory: the URI of the part."""
    switches = {f"drawer{number}_switch": f"{SWITCHES}/drawer{number}_switch" for number in falcon.state.drawers}
    return {"bmc": BMC, **switches, **{slot.endpoint: slot.uri for slot in falcon.state.all_slots() if slot.connected}}


def _node(falcon: Falcon, uri: str, part: str) -> ResourceNode:
    return ResourceNode(uri, partial(_software, falcon, uri, part))


def _software(falcon: Falcon, uri: str, part: str) -> Body:
    name = uri.rpartition("/")[2]
    return {
        **identity(uri, "SoftwareInventory", f"Firmware of {name}"),
        "Version": falcon.state.version(name),
        "Updateable": True,
        "WriteProtected": False,
        "Status": {"State": "Enabled", "Health": "OK"},
        **references(RelatedItem=[part]),
    }


async def _simple(falcon: Falcon, call: AuthenticatedRequest) -> Reply:
    image = call.body.get("ImageURI")
    if not isinstance(image, str):
        raise parameter_missing("SimpleUpdate", "ImageURI")
    version = image.rpartition("/")[2].partition("-")[2].removesuffix(".bin")
    return _start(falcon, call.body.get("Targets"), version if VERSION.fullmatch(version) else "")


async def _pushed(falcon: Falcon, call: AuthenticatedRequest) -> Reply:
    upload = call.upload
    if upload is None or upload.size > MAX_IMAGE_BYTES:
        raise RedfishError(413, "PayloadTooLarge", f"An image has at most {MAX_IMAGE_BYTES} bytes.")
    found = HEAD.match(upload.head)
    return _start(falcon, call.body.get("Targets", falcon.push_targets), found[1].decode() if found else "")


def _start(falcon: Falcon, targets: object, version: str) -> Reply:
    names = [str(one).removeprefix(f"{INVENTORY}/") for one in targets] if isinstance(targets, list) else []
    for name in names:
        if name not in _parts(falcon):
            raise property_error("PropertyValueNotInList", "Targets", f"{name} has no firmware here.", name, "Targets")
    if falcon.updating:
        raise RedfishError(503, "ServiceTemporarilyUnavailable", "Another update has not ended.")
    falcon.updating = True
    return task_accepted(falcon.tasks.start("Update of firmware", partial(_update, falcon, names or ["bmc"], version)))


async def _update(falcon: Falcon, names: list[str], version: str, task: BmcTask) -> tuple[int, Body | None]:
    try:
        for step in range(UPDATE_STEPS):
            await asyncio.sleep(UPDATE_SECONDS / UPDATE_STEPS / falcon.clock.speed)
            if not version and step == 1:
                raise RedfishError(400, "InvalidUpload", "The image is not for this chassis: its header is wrong.")
            if falcon.faults.is_active("firmware_hangs") and step == UPDATE_STEPS // 2:
                await asyncio.sleep(3600)
            task.percent = 100 * (step + 1) // (UPDATE_STEPS + 1)
    finally:
        falcon.updating = False
    if falcon.faults.is_active("firmware_keeps_version"):
        version = ""
    for name in names:
        slot = falcon.state.slot_of_endpoint(name)
        if version and slot is not None and slot.present is not None:
            slot.present.firmware = version
        elif version and name != "bmc":
            falcon.state.versions[name] = version
        _restart(falcon, name)
    if "bmc" in names:
        falcon.restart_after(0.2, lambda: _reboot(falcon, version))
    return 200, None


def _restart(falcon: Falcon, name: str) -> None:
    """Restart a switch or device with its new firmware: its links train again."""
    for port in falcon.state.switch_ports():
        if name in {port.switch, port.endpoint} and port.in_use and port.connected:
            falcon.physics.drop(port)
            falcon.physics.train(port.link)


def _reboot(falcon: Falcon, version: str) -> None:
    if version:
        falcon.state.versions["bmc"] = version
    falcon.faults.add(FaultRequest(kind="bmc_reboot", seconds=REBOOT_SECONDS))
