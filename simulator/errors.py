"""Refusals of the service: one class, carried to the client as Redfish extended error information."""

from __future__ import annotations

from collections.abc import Container

from simulator.odata import Body, odata_type


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
        self.message_id = key if "." in key else f"Base.1.19.{key}"
        self.sentence = sentence
        self.arguments = arguments
        self.resolution = resolution
        self.related = related
        self.headers = headers or {}

    def body(self) -> Body:
        """Return the error in the format of the specification."""
        info: Body = {
            "@odata.type": odata_type("Message"),
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


def referenced_not_found(kind: str, name: str) -> RedfishError:
    """Return the refusal of a reference to a resource that does not exist."""
    sentence = f"The requested resource of type {kind} named '{name}' was not found."
    return RedfishError(400, "ResourceNotFound", sentence, arguments=(kind, name))


def unauthorized(uri: str, sentence: str, reason: str) -> RedfishError:
    """Return the refusal of missing or wrong credentials."""
    headers = {"WWW-Authenticate": 'Basic realm="Falcon"'}
    return RedfishError(401, "ResourceAtUriUnauthorized", sentence, arguments=(uri, reason), headers=headers)


def stale_etag(status: int, key: str, sentence: str) -> RedfishError:
    """Return the refusal of a change that was made to an earlier state of the resource."""
    resolution = "Read the resource again and repeat the request with its new ETag."
    return RedfishError(status, key, sentence, resolution=resolution)


def no_operation() -> RedfishError:
    """Return the refusal of a change without properties."""
    return RedfishError(400, "NoOperation", "The request body names no property to change.")


def property_refused(name: str, known: Container[str]) -> RedfishError:
    """Return the refusal of a property that cannot be changed, or that the resource does not have."""
    if name in known:
        sentence = f"The property '{name}' is a read-only property and cannot be assigned a value."
        return property_error("PropertyNotWritable", name, sentence, name)
    sentence = f"The property '{name}' is not in the list of valid properties for the resource."
    return property_error("PropertyUnknown", name, sentence, name)


def property_value(name: str, value: object) -> RedfishError:
    """Return the refusal of a value that a property cannot have."""
    sentence = f"The value '{value}' for the property '{name}' is not in the list of acceptable values."
    return property_error("PropertyValueNotInList", name, sentence, str(value), name)


def property_type(name: str, value: object) -> RedfishError:
    """Return the refusal of a value of the wrong type."""
    sentence = f"The value '{value}' for the property {name} is not of a type it can accept."
    return property_error("PropertyValueTypeError", name, sentence, str(value), name)


def property_missing(name: str) -> RedfishError:
    """Return the refusal of a request without a required property."""
    sentence = f"The property '{name}' is a required property and must be included in the request."
    return property_error("PropertyMissing", name, sentence, name)


def property_error(key: str, name: str, sentence: str, *arguments: str) -> RedfishError:
    """Return a refusal that is about a property."""
    return RedfishError(400, key, sentence, arguments=arguments, related=f"#/{name}")


def parameter_missing(action: str, parameter: str) -> RedfishError:
    """Return the refusal of an action without a required parameter."""
    sentence = f"The action {action} requires the parameter {parameter} to be present in the request body."
    return RedfishError(400, "ActionParameterMissing", sentence, arguments=(action, parameter))


def internal_error(sentence: str, status: int = 500) -> RedfishError:
    """Return the failure of a request that was correct."""
    return RedfishError(status, "InternalError", sentence)


def conflict(rule: str) -> RedfishError:
    """Return the refusal of a composition that a rule of the chassis forbids."""
    return RedfishError(
        409,
        "H3Falcon.1.0.CompositionRefused",
        rule,
        arguments=(rule,),
        resolution="Change the allocation so that the rule holds, and send the request again.",
    )
