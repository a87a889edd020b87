"""People, tenants and grants by the API: for administrators, like their pages."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import generics, serializers
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import services
from accounts.access import administrator_required
from accounts.models import Role, Tenant, Token, User
from accounts.selectors import holdings_of, people_found, tenants_found
from fabric.holdings import holdings_revision
from fabric.models import Device, HostPort
from fabric.services.grants import grants_set
from falconweb.api.fields import SEARCH, IdField, LinkedText, search_of
from falconweb.api.views import person_of
from falconweb.errors import NotFound

# Secrets that are shown once are kept by no cache.
UNCACHED = {"Cache-Control": "no-store"}
MOST_THINGS = 10_000


class IsAdministrator(BasePermission):
    """Lets administrators in before anything else is looked at; everybody else gets 403 with the pages' sentence."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Tell whether the person is an administrator."""
        administrator_required(person_of(request))
        return True


ADMINISTRATORS = [IsAuthenticated, IsAdministrator]


class PersonSerializer(serializers.Serializer[Any]):
    """A person. Administrators belong to no tenant (`tenant_id` null), users and viewers to one."""

    id = serializers.IntegerField(read_only=True)
    username = serializers.CharField(max_length=150)
    full_name = serializers.CharField(source="get_full_name", max_length=150, required=False, allow_blank=True)
    email = serializers.EmailField(max_length=254, required=False, allow_blank=True)
    role = serializers.ChoiceField(choices=Role.choices)
    tenant_id = IdField(allow_null=True, required=False)
    tenant_name = LinkedText("tenant.name")
    active = serializers.BooleanField(source="is_active", required=False)
    last_login = serializers.DateTimeField(read_only=True, allow_null=True)
    previous_login = serializers.DateTimeField(read_only=True, allow_null=True)


class NewPersonSerializer(PersonSerializer):
    """A person as just added: `password` is shown this once."""

    password = serializers.CharField(read_only=True)


class PasswordSerializer(serializers.Serializer[Any]):
    """A generated password, shown this once."""

    password = serializers.CharField(read_only=True)


class TokenSerializer(serializers.ModelSerializer[Token]):
    """A key to the API, without its secret."""

    class Meta:
        model = Token
        fields = ["id", "name", "scope", "created_at", "expires_at", "last_used_at"]


class TenantSerializer(serializers.Serializer[Any]):
    """A tenant: how many people it has, and what it holds in words."""

    id = serializers.IntegerField(source="tenant.pk", read_only=True)
    name = serializers.CharField(source="tenant.name", max_length=100)
    created_at = serializers.DateTimeField(source="tenant.created_at", read_only=True)
    people = serializers.IntegerField(read_only=True)
    holds = serializers.ListField(child=serializers.CharField(), read_only=True)


class GrantsSerializer(serializers.Serializer[Any]):
    """What a tenant holds, by id; all others that it held become free.

    What another tenant holds is refused unless it stands in `take_devices` or `take_host_ports` too. `revision` (of all
    grants, as GET answered it) refuses the change when somebody changed grants meanwhile.
    """

    devices = serializers.ListField(child=IdField(), max_length=MOST_THINGS)
    host_ports = serializers.ListField(child=IdField(), max_length=MOST_THINGS)
    take_devices = serializers.ListField(
        child=IdField(), max_length=MOST_THINGS, required=False, default=list, write_only=True
    )
    take_host_ports = serializers.ListField(
        child=IdField(), max_length=MOST_THINGS, required=False, default=list, write_only=True
    )
    revision = serializers.CharField(max_length=64, required=False)


class PersonList(generics.ListAPIView[User]):
    """People; POST adds one."""

    permission_classes = ADMINISTRATORS
    serializer_class = PersonSerializer

    def get_queryset(self) -> Any:
        """Return people that match the search."""
        return people_found("" if getattr(self, "swagger_fake_view", False) else search_of(self.request))

    @extend_schema(parameters=[SEARCH])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List people; each word of the search is looked for. Administrators only."""
        return super().get(request, *args, **kwargs)

    @extend_schema(request=PersonSerializer, responses={201: NewPersonSerializer})
    def post(self, request: Request) -> Response:
        """Add a person; the answer shows the generated password, this once. Administrators only."""
        wanted = PersonSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        person, password = services.person_add(
            by=person_of(request),
            username=values["username"],
            full_name=values.get("get_full_name", ""),
            email=values.get("email", ""),
            role=values["role"],
            tenant=_tenant_of(values.get("tenant_id")),
            active=values.get("is_active", True),
        )
        person.refresh_from_db()
        address = request.build_absolute_uri(reverse("api:person", args=[person.pk]))
        answer = {**PersonSerializer(person).data, "password": password}
        return Response(answer, status=201, headers={"Location": address, **UNCACHED})


class PersonDetail(APIView):
    """One person. People are never removed, only deactivated: what they did keeps their name."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="people_retrieve", responses=PersonSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show a person; administrators only."""
        return Response(PersonSerializer(_person(pk)).data)

    @extend_schema(
        operation_id="people_partial_update", request=PersonSerializer(partial=True), responses=PersonSerializer
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change what is given and keep the rest; `active` false ends sessions and tokens. Administrators only."""
        row = _person(pk)
        wanted = PersonSerializer(data=request.data, partial=True)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        services.person_edit(
            by=person_of(request),
            person=row,
            username=values.get("username", row.username),
            full_name=values.get("get_full_name", row.get_full_name()),
            email=values.get("email", row.email),
            role=values.get("role", row.role),
            tenant=_tenant_of(values["tenant_id"]) if "tenant_id" in values else row.tenant,
            active=values.get("is_active", row.is_active),
        )
        return Response(PersonSerializer(_person(pk)).data)


class PersonPassword(APIView):
    """The password of a person."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="people_password_create", request=None, responses=PasswordSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Set a generated password, end the person's sessions and tokens, lift a lock. Administrators only."""
        password = services.person_password_reset(by=person_of(request), person=_person(pk))
        return Response({"password": password}, headers=UNCACHED)


class PersonTokens(generics.ListAPIView[Token]):
    """The tokens of a person."""

    permission_classes = ADMINISTRATORS
    serializer_class = TokenSerializer

    def get_queryset(self) -> Any:
        """Return them."""
        if getattr(self, "swagger_fake_view", False):
            return Token.objects.none()
        return _person(self.kwargs["pk"]).tokens.all()

    @extend_schema(operation_id="people_tokens_list")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List a person's tokens, without secrets; administrators only."""
        return super().get(request, *args, **kwargs)


class PersonToken(APIView):
    """One token of a person."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="people_tokens_destroy", responses={204: None})
    def delete(self, request: Request, pk: int, token_pk: int) -> Response:
        """Revoke a person's token at once; administrators only."""
        token = Token.objects.select_related("person").filter(pk=token_pk, person=pk).first()
        if token is None:
            raise NotFound("There is no such token.")
        services.token_revoke(by=person_of(request), token=token)
        return Response(status=204)


class TenantList(generics.ListAPIView[Any]):
    """Tenants; POST adds one."""

    permission_classes = ADMINISTRATORS
    serializer_class = TenantSerializer

    def get_queryset(self) -> Any:
        """Return tenants that match the search (a list: they are few, and counted with what they hold)."""
        return [] if getattr(self, "swagger_fake_view", False) else tenants_found(search_of(self.request))

    @extend_schema(parameters=[SEARCH])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List tenants; administrators only."""
        return super().get(request, *args, **kwargs)

    @extend_schema(responses={201: TenantSerializer})
    def post(self, request: Request) -> Response:
        """Add a tenant, which has nobody and holds nothing. Administrators only."""
        row = services.tenant_add(by=person_of(request), name=_name(request))
        address = request.build_absolute_uri(reverse("api:tenant", args=[row.pk]))
        return Response(_tenant_data(row), status=201, headers={"Location": address})


class TenantDetail(APIView):
    """One tenant."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="tenants_retrieve", responses=TenantSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show a tenant; administrators only."""
        return Response(_tenant_data(_tenant(pk)))

    @extend_schema(operation_id="tenants_partial_update", request=TenantSerializer, responses=TenantSerializer)
    def patch(self, request: Request, pk: int) -> Response:
        """Give a tenant another name; administrators only."""
        row = _tenant(pk)
        return Response(_tenant_data(services.tenant_edit(by=person_of(request), tenant=row, name=_name(request))))

    @extend_schema(
        operation_id="tenants_destroy",
        responses={204: None, 409: OpenApiResponse(description="It still has people or holds something")},
    )
    def delete(self, request: Request, pk: int) -> Response:
        """Remove a tenant that has nobody and holds nothing. Administrators only."""
        services.tenant_remove(by=person_of(request), tenant=_tenant(pk))
        return Response(status=204)


class TenantGrants(APIView):
    """What a tenant holds."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="tenants_grants_retrieve", responses=GrantsSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show the devices and host ports that a tenant holds; administrators only."""
        return Response(_grants(_tenant(pk)))

    @extend_schema(operation_id="tenants_grants_update", request=GrantsSerializer, responses=GrantsSerializer)
    def put(self, request: Request, pk: int) -> Response:
        """Let a tenant hold exactly these devices and host ports; all or nothing happens. Administrators only."""
        row = _tenant(pk)
        wanted = GrantsSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        taken: list[Device | HostPort] = [
            *_things(Device, values["take_devices"], "device"),
            *_things(HostPort, values["take_host_ports"], "host port"),
        ]
        grants_set(
            person=person_of(request),
            tenant=row,
            devices=_things(Device, values["devices"], "device"),
            host_ports=_things(HostPort, values["host_ports"], "host port"),
            take=taken,
            seen=values.get("revision"),
        )
        return Response(_grants(row))


def _person(pk: int) -> User:
    row = User.objects.select_related("tenant").filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such person.")
    return row


def _tenant(pk: int) -> Tenant:
    row = Tenant.objects.filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such tenant.")
    return row


def _tenant_of(pk: int | None) -> Tenant | None:
    return None if pk is None else _tenant(pk)


def _name(request: Request) -> str:
    wanted = TenantSerializer(data=request.data)
    wanted.is_valid(raise_exception=True)
    name: str = wanted.validated_data["tenant"]["name"]
    return name


def _tenant_data(row: Tenant) -> Any:
    holds = holdings_of([row.pk]).get(row.pk, [])
    return TenantSerializer({"tenant": row, "people": row.people.count(), "holds": holds}).data


def _grants(tenant: Tenant) -> dict[str, Any]:
    return {
        "devices": list(Device.objects.filter(tenant=tenant).order_by("pk").values_list("pk", flat=True)),
        "host_ports": list(HostPort.objects.filter(tenant=tenant).order_by("pk").values_list("pk", flat=True)),
        "revision": holdings_revision(),
    }


def _things(model: Any, ids: list[int], what: str) -> list[Any]:
    """Return the rows of these ids; raises NotFound when one of them is missing, so that nothing is left out unsaid."""
    wanted = set(ids)
    rows = list(model.objects.filter(pk__in=wanted))
    if missing := wanted - {row.pk for row in rows}:
        raise NotFound(f"There is no {what} {min(missing)}.")
    return rows
