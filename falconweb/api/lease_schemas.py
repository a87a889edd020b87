"""What the API reads and tells of leases, of what is held when, and of quotas."""

from __future__ import annotations

from collections import Counter
from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers

from fabric.leases import wishes_of
from fabric.models import Lease
from fabric.models.leases import KINDS
from fabric.services.leases import LONGEST_TEXT, objections_to
from fabric.services.quotas import MOST
from falconweb.api.bodies import Body
from falconweb.api.fields import IdField
from falconweb.api.tenants import MOST_THINGS

ASK = OpenApiExample(
    "Two GPUs and a host port for a week",
    value={
        "wishes": [{"kind": "gpu", "count": 2}, {"kind": "host_port", "count": 1, "chassis_id": 1}],
        "starts_at": "2026-03-02T08:00:00Z",
        "ends_at": "2026-03-09T08:00:00Z",
        "note": "Training for the paper",
    },
    request_only=True,
)


class WishSerializer(Body, serializers.Serializer[Any]):
    """So many things of a kind, of one chassis or of any."""

    kind = serializers.ChoiceField(choices=KINDS)
    count = serializers.IntegerField(min_value=1, max_value=1000)
    chassis_id = IdField(required=False, allow_null=True, default=None)


class LeaseItemSerializer(serializers.Serializer[Any]):
    """A device or host port of a lease; `taken_at` null: not yet, `released_at` null: not yet."""

    id = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=KINDS)
    name = serializers.CharField()
    device_id = serializers.IntegerField(allow_null=True)
    host_port_id = serializers.IntegerField(allow_null=True)
    taken_at = serializers.DateTimeField(allow_null=True)
    released_at = serializers.DateTimeField(allow_null=True)


class LeaseEventSerializer(serializers.Serializer[Any]):
    """A line of the timeline."""

    at = serializers.DateTimeField()
    by_name = serializers.CharField()
    sentence = serializers.CharField()


class LeaseSerializer(serializers.Serializer[Any]):
    """A lease; `ends_at` null is until further notice, `extension_to` the end that is asked for instead."""

    id = serializers.IntegerField()
    tenant_id = serializers.IntegerField(allow_null=True)
    tenant_name = serializers.CharField()
    state = serializers.ChoiceField(choices=Lease.State.choices)
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField(allow_null=True)
    wishes = serializers.SerializerMethodField()
    note = serializers.CharField()
    asked_by_name = serializers.CharField()
    asked_at = serializers.DateTimeField()
    decided_by_name = serializers.CharField()
    decided_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()
    extension_to = serializers.DateTimeField(allow_null=True)
    trouble = serializers.CharField(help_text="Why it cannot be returned, at the last try")
    ended_at = serializers.DateTimeField(allow_null=True)
    items = LeaseItemSerializer(many=True, source="items.all")

    @extend_schema_field(WishSerializer(many=True))
    def get_wishes(self, lease: Lease) -> list[dict[str, Any]]:
        """Return what it was asked for."""
        return [{"kind": one.kind, "count": one.count, "chassis_id": one.chassis} for one in wishes_of(lease)]


class LeaseDetailSerializer(LeaseSerializer):
    """A lease with its timeline, and the quotas that a request would pass."""

    events = LeaseEventSerializer(many=True, source="events.all")
    quota = serializers.SerializerMethodField(help_text="A sentence for each quota that the request would pass")

    def get_quota(self, lease: Lease) -> list[str]:
        """Return what the quotas say of a request that waits."""
        if lease.tenant is None or lease.state != Lease.State.REQUESTED:
            return []
        return objections_to(lease.tenant, wishes_of(lease), lease.starts_at, lease.ends_at, but=lease)


class LeaseRequestSerializer(Body, serializers.Serializer[Any]):
    """What your tenant asks for; without `starts_at` as soon as it is approved, without `ends_at` until further notice.

    Who may not ask for so long is told so by `quota` of the answer: an administrator decides.
    """

    wishes = WishSerializer(many=True)
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    ends_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=LONGEST_TEXT)


class ThingsSerializer(Body, serializers.Serializer[Any]):
    """What a lease is to hold and when; `override` lets it pass a quota."""

    device_ids = serializers.ListField(child=IdField(), max_length=MOST_THINGS, required=False, default=list)
    host_port_ids = serializers.ListField(child=IdField(), max_length=MOST_THINGS, required=False, default=list)
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    ends_at = serializers.DateTimeField(allow_null=True)
    override = serializers.BooleanField(required=False, default=False)


class ApprovalSerializer(ThingsSerializer):
    """An approval; `reason` is read by the tenant."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=LONGEST_TEXT)


class GivenSerializer(ThingsSerializer):
    """A lease that is given unasked."""

    tenant_id = IdField()
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=LONGEST_TEXT)


class ReasonSerializer(Body, serializers.Serializer[Any]):
    """A word to the tenant."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=LONGEST_TEXT)


class EndSerializer(Body, serializers.Serializer[Any]):
    """Another end (null, by administrators only: until further notice), with a word about it."""

    ends_at = serializers.DateTimeField(allow_null=True)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=LONGEST_TEXT)
    override = serializers.BooleanField(required=False, default=False)


class ReturnSerializer(Body, serializers.Serializer[Any]):
    """What of a lease is returned, by the ids of its items; all without them."""

    item_ids = serializers.ListField(child=IdField(), max_length=MOST_THINGS, required=False, allow_null=True)


class HeldSerializer(serializers.Serializer[Any]):
    """How long a tenant held things of a kind in a month (UTC), and how many different ones."""

    tenant_name = serializers.CharField(source="tenant")
    kind = serializers.ChoiceField(choices=KINDS)
    month = serializers.CharField(source="month_label")
    hours = serializers.FloatField()
    seconds = serializers.FloatField()
    things = serializers.IntegerField()


class BlockSerializer(serializers.Serializer[Any]):
    """A time in which something is held; without a lease's id it is somebody else's: 'in use'."""

    lease_id = serializers.IntegerField(allow_null=True)
    text = serializers.CharField()
    state = serializers.CharField()
    starts_at = serializers.DateTimeField(source="span.begin")
    ends_at = serializers.DateTimeField(source="span.end", allow_null=True)


class CalendarRowSerializer(serializers.Serializer[Any]):
    """A slot, device or host port with the times in which it is held; none: it is free."""

    place = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the field of that name, not the caption
    about = serializers.CharField()
    blocks = BlockSerializer(many=True)


class LimitSerializer(Body, serializers.Serializer[Any]):
    """The limits of a kind; null is none."""

    kind = serializers.ChoiceField(choices=KINDS)
    most_at_once = serializers.IntegerField(min_value=0, max_value=MOST, allow_null=True, required=False, default=None)
    most_hours_a_month = serializers.IntegerField(
        min_value=0, max_value=MOST, allow_null=True, required=False, default=None
    )


class LimitsSerializer(Body, serializers.Serializer[Any]):
    """All limits of a tenant; kinds that are left out have none."""

    limits = LimitSerializer(many=True)

    def validate_limits(self, limits: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Refuse a kind that is named twice: which of the two is meant would be a guess."""
        twice = [kind for kind, count in Counter(one["kind"] for one in limits).items() if count > 1]
        if twice:
            raise serializers.ValidationError(f"The kind '{twice[0]}' is named more than once.")
        return limits
