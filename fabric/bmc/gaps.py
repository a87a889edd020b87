"""What a service lacks of an interoperability profile, as data of an inventory."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class GapKind(StrEnum):
    """In which way a requirement of a profile is not met."""

    RESOURCE = "resource"  # there is none of the type
    VERSION = "version"  # older than the version that is asked for
    PROPERTY = "property"
    ACTION = "action"
    VALUE = "value"
    COUNT = "count"  # too few entries of a list
    EXCLUDED = "excluded"  # present, and must not be
    WAY = "way"  # none of the known ways to attach devices


class ProfileGap(msgspec.Struct, frozen=True, kw_only=True):
    """One requirement of an interoperability profile that a service does not meet.

    `purpose` is the title of the profile's use case: what the requirement is for. `missing` of the `of` places where it
    applies do not meet it, `examples` are the first of their resources; both numbers are 1 for a missing type.
    """

    purpose: str = ""
    resource: str = ""  # type, such as 'Port'
    property: str = ""  # path, such as 'PCIeErrors/FatalErrorCount', or the name of an action
    kind: GapKind = GapKind.PROPERTY
    wanted: str = ""  # the values, version or number that is asked for
    is_recommended: bool = False  # False: mandatory
    missing: int = 1
    of: int = 1
    reason: str = ""  # a sentence of the profile: why it is asked for
    examples: tuple[str, ...] = ()
