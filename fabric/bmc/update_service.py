"""The update service of a BMC: the ways in which it takes images of firmware, and what has any."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from fabric.bmc.values import JsonObject, integer, mapping, text, texts


class ManagedPartKind(StrEnum):
    """What a part is; SOFTWARE belongs to no part that the service names."""

    BMC = "bmc"
    CHASSIS = "chassis"
    DRAWER = "drawer"
    SWITCH = "switch"
    DEVICE = "device"
    SLOT = "slot"  # without a device
    DRIVE = "drive"
    HOST = "host"
    SOFTWARE = "software"


class RedfishUpdateService(msgspec.Struct, frozen=True, kw_only=True):
    """How a service takes images of firmware: by their URI, or pushed to it; '' for a way that it does not offer."""

    uri: str
    simple_update_target: str = ""
    protocols: tuple[str, ...] = ()  # of an image's URI: 'HTTPS'; () where it lists none
    multipart_uri: str = ""
    push_uri: str = ""
    takes_push_targets: bool = False  # what a push is for is set before it
    max_image_bytes: int | None = None

    @property
    def takes_pushes(self) -> bool:
        """Whether images can be pushed to it."""
        return bool(self.multipart_uri or self.push_uri)


def read_update_service(body: JsonObject, uri: str) -> RedfishUpdateService:
    """Return the ways that the resource of a service offers."""
    simple = mapping(body, "Actions", "#UpdateService.SimpleUpdate")
    return RedfishUpdateService(
        uri=uri,
        simple_update_target=text(simple, "target"),
        protocols=texts(simple, "TransferProtocol@Redfish.AllowableValues"),
        multipart_uri=text(body, "MultipartHttpPushUri"),
        push_uri=text(body, "HttpPushUri"),
        takes_push_targets="HttpPushUriTargets" in body,
        max_image_bytes=integer(body, "MaxImageSizeBytes"),
    )
