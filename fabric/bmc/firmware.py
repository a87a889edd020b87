"""Updates of firmware by UpdateService: an image's URI, or an image that is pushed, and the version afterwards.

Source: DMTF's Redfish Firmware Update White Paper (DSP2062): SimpleUpdate, multipart HTTP push, HTTP push.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError, CompositionRefused, RequestRefused
from fabric.bmc.transport import BmcResponse
from fabric.bmc.update_service import RedfishUpdateService, read_update_service
from fabric.bmc.values import link, text

PUSH_SECONDS = 1800.0  # 512 MiB at 0.3 MB/s, as slow BMCs write it


async def find_update_service(bmc: BmcClient) -> RedfishUpdateService:
    """Return the update service as it is now; raises CompositionRefused where there is none."""
    uri = link((await bmc.service_root()).body, "UpdateService")
    if not uri:
        raise CompositionRefused("Its service offers no updates of firmware.")
    return read_update_service((await bmc.get(uri)).body, uri)


async def read_version(bmc: BmcClient, software_uri: str) -> str:
    """Return the version that the firmware inventory tells now."""
    return text((await bmc.get(software_uri)).body, "Version")


async def send_image_uri(bmc: BmcClient, service: RedfishUpdateService, image_uri: str, target: str) -> BmcResponse:
    """Have the BMC fetch an image for a member of its firmware inventory; raises CompositionRefused."""
    if not service.simple_update_target:
        raise CompositionRefused("Its service takes no image by its URI.")
    body = {"ImageURI": image_uri, "Targets": [target]}
    if service.protocols:
        body["TransferProtocol"] = urlsplit(image_uri).scheme.upper()
    try:
        return await bmc.post(service.simple_update_target, body)
    except RequestRefused as error:
        raise _refused(error) from error


async def push_image(bmc: BmcClient, service: RedfishUpdateService, path: Path, name: str, target: str) -> BmcResponse:
    """Send an image for a member of the firmware inventory, streamed from its file; raises CompositionRefused."""
    try:
        with path.open("rb") as file:
            if service.multipart_uri:
                form = aiohttp.MultipartWriter("form-data")
                parameters = form.append(
                    msgspec.json.encode({"Targets": [target]}), {"Content-Type": "application/json"}
                )
                parameters.set_content_disposition("form-data", name="UpdateParameters")
                image = form.append(file, {"Content-Type": "application/octet-stream"})
                image.set_content_disposition("form-data", name="UpdateFile", filename=name)
                return await bmc.push(service.multipart_uri, form, headers={}, timeout=PUSH_SECONDS)
            if not service.push_uri:
                raise CompositionRefused("Its service takes no image that is pushed.")
            if service.takes_push_targets:
                await bmc.patch(service.uri, {"HttpPushUriTargets": [target]})
            content = aiohttp.BufferedReaderPayload(file, content_type="application/octet-stream")
            return await bmc.push(service.push_uri, content, headers={}, timeout=PUSH_SECONDS)
    except RequestRefused as error:
        raise _refused(error) from error


async def cancel_task(bmc: BmcClient, monitor: str) -> bool:
    """Return whether the service cancels a task: DELETE of its monitor."""
    try:
        await bmc.delete(bmc.own_path(monitor))
    except BmcError:
        return False
    return True


def _refused(error: RequestRefused) -> CompositionRefused:
    return CompositionRefused(error.reason or "Its service refused it.", answered=error.answered)
