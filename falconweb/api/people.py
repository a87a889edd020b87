"""People and their tokens by the API: for administrators, like their pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import services
from accounts.access import person_of
from accounts.models import Role, Tenant, Token, User
from accounts.selectors import people_found
from falconweb.api.bodies import Body, refuse_body
from falconweb.api.fields import SEARCH, IdField, LinkedText, search_of
from falconweb.api.openapi import problem
from falconweb.api.permissions import ADMINISTRATORS
from falconweb.api.tenants import tenant_by
from falconweb.errors import Invalid, NotFound

# Secrets that are shown once are kept by no cache.
UNCACHED = {"Cache-Control": "no-store"}
NO_TENANT = "There is no such tenant"


class PersonSerializer(Body, serializers.Serializer[Any]):
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

    @extend_schema(request=PersonSerializer, responses={201: NewPersonSerializer, 404: problem(NO_TENANT)})
    def post(self, request: Request) -> Response:
        """Add a person; the answer shows the generated password, this once. Administrators only."""
        wanted = PersonSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        with _named_as_here():
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
        operation_id="people_partial_update",
        request=PersonSerializer(partial=True),
        responses={
            200: PersonSerializer,
            409: problem("It is the last administrator, or yourself that you would deactivate"),
        },
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change a person: what is given changes, and `active` false ends sessions and tokens. Administrators only."""
        row = _person(pk)
        wanted = PersonSerializer(data=request.data, partial=True)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        with _named_as_here():
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

    @extend_schema(
        operation_id="people_password_create",
        request=None,
        responses={200: PasswordSerializer, 409: problem("It is your own: change that on your account page")},
    )
    def post(self, request: Request, pk: int) -> Response:
        """Set a generated password: it ends sessions and tokens, and lifts a lock. Administrators only."""
        row = _person(pk)
        refuse_body(request)
        password = services.person_password_reset(by=person_of(request), person=row)
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
    def delete(self, request: Request, pk: int, token_id: int) -> Response:
        """Revoke a person's token at once; administrators only."""
        token = Token.objects.select_related("person").filter(pk=token_id, person=pk).first()
        if token is None:
            raise NotFound("There is no such token.")
        refuse_body(request)
        services.token_revoke(by=person_of(request), token=token)
        return Response(status=204)


@contextmanager
def _named_as_here() -> Iterator[None]:
    """Let what is wrong with a person carry the name of the field that was sent."""
    try:
        yield
    except Invalid as error:
        errors = error.details.get("errors", {})
        if "tenant" in errors:
            errors["tenant_id"] = errors.pop("tenant")
        raise


def _person(pk: int) -> User:
    row = User.objects.select_related("tenant").filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such person.")
    return row


def _tenant_of(pk: int | None) -> Tenant | None:
    return None if pk is None else tenant_by(pk)
