"""Refusals of the service: one class, carried to the client as Redfish extended error information."""

from __future__ import annotations

from typing import Any

Body = dict[str, Any]
BASE = "Base.1.19"


class RedfishError(Exception):
    """A refused request: HTTP status, message ID, sentence, and the property it is about."""

    def __init__(
        self,
        status: int,
        key: str,
        sentence: str,
        *,
        arguments: tuple[str, ...] = (),
        resolution: str = "Correct the request and send it again.",
        related: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.message_id = key if "." in key else f"{BASE}.{key}"
        self.sentence = sentence
        self.arguments = arguments
        self.resolution = resolution
        self.related = related
        self.headers = headers or {}

    def body(self) -> Body:
        """Return the error in the format of the specification."""
        info: Body = {
            "@odata.type": "#Message.v1_3_0.Message",
            "MessageId": self.message_id,
            "Message": self.sentence,
            "MessageArgs": list(self.arguments),
            "MessageSeverity": "Critical" if self.status >= 500 else "Warning",
            "Resolution": self.resolution,
        }
        if self.related is not None:
            info["RelatedProperties"] = [self.related]
        return {"error": {"code": self.message_id, "message": self.sentence, "@Message.ExtendedInfo": [info]}}


def not_found(uri: str) -> RedfishError:
    """Return the refusal of a URI without a resource."""
    return RedfishError(
        404, "ResourceMissingAtURI", f"The resource at the URI '{uri}' was not found.", arguments=(uri,)
    )


def property_unknown(name: str) -> RedfishError:
    """Return the refusal of a property that the resource does not have."""
    return RedfishError(
        400,
        "PropertyUnknown",
        f"The property '{name}' is not in the list of valid properties for the resource.",
        arguments=(name,),
        related=f"#/{name}",
    )


def property_not_writable(name: str) -> RedfishError:
    """Return the refusal of a property that cannot be changed."""
    return RedfishError(
        400,
        "PropertyNotWritable",
        f"The property '{name}' is a read-only property and cannot be assigned a value.",
        arguments=(name,),
        related=f"#/{name}",
    )


def property_value(name: str, value: object) -> RedfishError:
    """Return the refusal of a value that a property cannot have."""
    return RedfishError(
        400,
        "PropertyValueNotInList",
        f"The value '{value}' for the property '{name}' is not in the list of acceptable values.",
        arguments=(str(value), name),
        related=f"#/{name}",
    )


def property_missing(name: str) -> RedfishError:
    """Return the refusal of a request without a required property."""
    return RedfishError(
        400,
        "PropertyMissing",
        f"The property '{name}' is a required property and must be included in the request.",
        arguments=(name,),
        related=f"#/{name}",
    )


def conflict(rule: str) -> RedfishError:
    """Return the refusal of a composition that a rule of the chassis forbids."""
    return RedfishError(
        409,
        "H3Falcon.1.0.CompositionRefused",
        rule,
        arguments=(rule,),
        resolution="Change the allocation so that the rule holds, and send the request again.",
    )
