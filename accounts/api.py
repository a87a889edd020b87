"""People, tenants and one's own account by the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from django.urls import path
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import services
from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.models import PersonKind, Role, Tenant, User
from accounts.permissions import ADMINISTRATORS
from accounts.selectors import TenantRow, find_people, find_tenants, tenant_asset_labels
from accounts.viewsets import BodySerializer, ResourceViewSet, command
from accounts.visibility import row_or_404
from core.api.fields import SEARCH, IdField, LinkedId, LinkedText, query_search
from core.api.requests import StrictSerializer, problem, validated_body
from core.errors import Invalid

NO_TENANT = "There is no such tenant"


class PersonSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A person. Administrators belong to no tenant (`tenant_id` null), users and viewers to one."""

    id = serializers.IntegerField(read_only=True)
    kind = serializers.ChoiceField(choices=PersonKind.choices, read_only=True)
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
    """An added person: `password` is shown this once."""

    password = serializers.CharField(read_only=True)


class PasswordSerializer(serializers.Serializer[Any]):
    """A generated password, shown this once."""

    password = serializers.CharField(read_only=True)


@extend_schema_view(get=extend_schema(parameters=[SEARCH]))
class PersonList(generics.ListAPIView[User]):
    """List people; each word of the search is looked for. Administrators only."""

    permission_classes = ADMINISTRATORS
    serializer_class = PersonSerializer

    def get_queryset(self) -> Any:
        """Return people that match the search."""
        return find_people(query_search(self.request))

    @declare(audited_as=Action.PERSON_ADD, fresh_sign_in=True)
    @extend_schema(request=PersonSerializer, responses={201: NewPersonSerializer, 404: problem(NO_TENANT)})
    def post(self, request: Request) -> Response:
        """Add a person; the answer shows the generated password, this once. Administrators only."""
        values = validated_body(PersonSerializer, request)
        with _api_field_names():
            person, password = services.person_add(
                by=person_of(request),
                username=values["username"],
                full_name=values.get("get_full_name", ""),
                email=values.get("email", ""),
                role=values["role"],
                tenant=tenant_or_none(values.get("tenant_id")),
                active=values.get("is_active", True),
            )
        person.refresh_from_db()
        return shown_once(PersonViewSet(request=request).answer(person, 201), password=password)


class PersonViewSet(ResourceViewSet):
    """One person. People are never removed, only deactivated: what they did keeps their name."""

    permission_classes = ADMINISTRATORS
    kind = "person"
    serializer_class = PersonSerializer
    address = "api:person"

    def find_row(self, pk: object) -> Any:
        """Return a person: administrators see everybody."""
        return row_or_404(User.objects.select_related("tenant"), pk, self.kind)

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show a person; administrators only."""
        return self.answer(self.find_row(pk))

    @command(
        PersonSerializer,
        audited_as=Action.PERSON_EDIT,
        partial=True,
        fresh_sign_in=True,
        conflict="It is the last administrator, or yourself that you would deactivate",
    )
    def partial_update(self, person: User, values: dict[str, Any]) -> User:
        """Change the given fields of a person; `active` false ends sessions and tokens. Administrators only."""
        with _api_field_names():
            services.person_edit(
                by=self.person,
                person=person,
                username=values.get("username", person.username),
                full_name=values.get("get_full_name", person.get_full_name()),
                email=values.get("email", person.email),
                role=values.get("role", person.role),
                tenant=tenant_or_none(values["tenant_id"]) if "tenant_id" in values else person.tenant,
                active=values.get("is_active", person.is_active),
            )
        changed: User = self.find_row(person.pk)
        return changed

    @command(
        audited_as=Action.PERSON_PASSWORD,
        fresh_sign_in=True,
        answers=PasswordSerializer,
        conflict="It is your own: change that on your account page",
    )
    def reset_password(self, person: User, values: dict[str, Any]) -> Response:
        """Set a generated password: it ends sessions and tokens, and lifts a lock. Administrators only."""
        password = services.person_password_reset(by=self.person, person=person)
        return shown_once(Response({}), password=password)


def shown_once(answer: Response, **secret: str) -> Response:
    """Return an answer with a secret that is shown this once: no cache keeps it."""
    answer.data.update(secret)
    answer["Cache-Control"] = "no-store"
    return answer


class ServiceAccountSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A service account to add: a user or viewer of a tenant, with tokens and without a password."""

    username = serializers.CharField(max_length=150)
    full_name = serializers.CharField(max_length=150, required=False, allow_blank=True, default="")
    role = serializers.ChoiceField(choices=Role.choices, default=Role.VIEWER)
    tenant_id = IdField()


class ServiceAccounts(APIView):
    """Service accounts; they are listed, shown and changed under people."""

    permission_classes = ADMINISTRATORS

    @declare(audited_as=Action.SERVICE_ADD, fresh_sign_in=True)
    @extend_schema(
        operation_id="service_accounts_create",
        request=ServiceAccountSerializer,
        responses={201: PersonSerializer, 404: problem(NO_TENANT)},
    )
    def post(self, request: Request) -> Response:
        """Add a service account of a tenant; administrators only."""
        values = validated_body(ServiceAccountSerializer, request)
        with _api_field_names():
            person = services.service_add(
                by=person_of(request), tenant=tenant_or_none(values.pop("tenant_id")), **values
            )
        return PersonViewSet(request=request).answer(person, 201)


@contextmanager
def _api_field_names() -> Iterator[None]:
    """Rename fields of errors to those of the API."""
    try:
        yield
    except Invalid as error:
        errors = error.details.get("errors", {})
        if "tenant" in errors:
            errors["tenant_id"] = errors.pop("tenant")
        raise


class MeSerializer(serializers.Serializer[Any]):
    """Your own account; `previous_login` is the sign-in before the last."""

    id = serializers.IntegerField()
    username = serializers.CharField()
    full_name = serializers.CharField(source="get_full_name")
    email = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    tenant_id = LinkedId("tenant.pk")
    tenant_name = LinkedText("tenant.name")
    may_compose = serializers.BooleanField()
    last_login = serializers.DateTimeField(allow_null=True)
    previous_login = serializers.DateTimeField(allow_null=True)


class Me(APIView):
    """One's own account."""

    @extend_schema(responses=MeSerializer)
    def get(self, request: Request) -> Response:
        """Show your name, role and tenant, and when you signed in."""
        return Response(MeSerializer(person_of(request)).data)


class TenantSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A tenant: its number of people, and in words what it owns or leases."""

    id = serializers.IntegerField(source="tenant.pk", read_only=True)
    name = serializers.CharField(source="tenant.name", max_length=100)
    created_at = serializers.DateTimeField(source="tenant.created_at", read_only=True)
    people = serializers.IntegerField(read_only=True)
    holds = serializers.ListField(source="assets", child=serializers.CharField(), read_only=True)


@extend_schema_view(get=extend_schema(parameters=[SEARCH]))
class TenantList(generics.ListAPIView[Any]):
    """List tenants; administrators only."""

    permission_classes = ADMINISTRATORS
    serializer_class = TenantSerializer

    def get_queryset(self) -> Any:
        """Return tenants that match the search."""
        return find_tenants(query_search(self.request))

    @declare(audited_as=Action.TENANT_ADD)
    @extend_schema(responses={201: TenantSerializer})
    def post(self, request: Request) -> Response:
        """Add a tenant without people and devices. Administrators only."""
        name = validated_body(TenantSerializer, request)["tenant"]["name"]
        row = services.tenant_add(by=person_of(request), name=name)
        return TenantViewSet(request=request).answer(row, 201)


class TenantViewSet(ResourceViewSet):
    """One tenant."""

    permission_classes = ADMINISTRATORS
    serializer_class: ClassVar[BodySerializer] = TenantSerializer
    address = "api:tenant"

    def find_row(self, pk: object) -> Any:
        """Return a tenant: administrators see all of them."""
        return tenant_by(pk)

    def presented(self, row: Tenant) -> Any:
        """Return a tenant with its people and what it holds."""
        assets = tenant_asset_labels([row.pk]).get(row.pk, [])
        return TenantRow(tenant=row, people=row.people.count(), assets=tuple(assets))

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show a tenant; administrators only."""
        return self.answer(self.find_row(pk))

    @command(TenantSerializer, audited_as=Action.TENANT_EDIT)
    def partial_update(self, tenant: Tenant, values: dict[str, Any]) -> Tenant:
        """Give a tenant another name; administrators only."""
        return services.tenant_edit(by=self.person, tenant=tenant, name=values["tenant"]["name"])

    @command(audited_as=Action.TENANT_REMOVE, status=204, conflict="It still has people or devices")
    def destroy(self, tenant: Tenant, values: dict[str, Any]) -> None:
        """Delete a tenant without people and devices. Administrators only."""
        services.tenant_remove(by=self.person, tenant=tenant)


def tenant_by(pk: object) -> Tenant:
    """Return a tenant; raises NotFound."""
    tenant: Tenant = row_or_404(Tenant.objects.all(), pk, "tenant")
    return tenant


def tenant_or_none(pk: int | None) -> Tenant | None:
    """Return the tenant of a `tenant_id`, None for null; raises NotFound."""
    return None if pk is None else tenant_by(pk)


urlpatterns = [
    path("me/", Me.as_view(), name="me"),
    path("people/", PersonList.as_view(), name="people"),
    path("people/service-accounts/", ServiceAccounts.as_view(), name="service_accounts"),
    path("people/<int:pk>/", PersonViewSet.as_view({"get": "retrieve", "patch": "partial_update"}), name="person"),
    path("people/<int:pk>/password/", PersonViewSet.as_view({"post": "reset_password"}), name="person_password"),
    path("tenants/", TenantList.as_view(), name="tenants"),
    path(
        "tenants/<int:pk>/",
        TenantViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="tenant",
    ),
]
