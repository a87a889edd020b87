"""People, tenants, tokens and one's own account by the API."""

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
from accounts.access import ADMINISTRATORS, person_of
from accounts.models import Role, Tenant, Token, User
from accounts.selectors import holdings_of, people_found, tenants_found
from accounts.services import TOKEN_MOST_DAYS, token_create, token_revoke
from core.api.fields import SEARCH, IdField, LinkedId, LinkedText, query_search
from core.api.requests import StrictSerializer, problem, refuse_body
from core.errors import Invalid, NotFound

# Secrets that are shown once are kept by no cache.
NO_STORE = {"Cache-Control": "no-store"}
NO_TENANT = "There is no such tenant"


class PersonSerializer(StrictSerializer, serializers.Serializer[Any]):
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
        return people_found("" if getattr(self, "swagger_fake_view", False) else query_search(self.request))

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
        with _api_field_names():
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
        return Response(answer, status=201, headers={"Location": address, **NO_STORE})


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
        with _api_field_names():
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
        return Response({"password": password}, headers=NO_STORE)


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
def _api_field_names() -> Iterator[None]:
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


class MeSerializer(serializers.Serializer[Any]):
    """The person who asks; `previous_login` is the sign-in before the last."""

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


class NewTokenSerializer(StrictSerializer, TokenSerializer):
    """A token as just made: `secret` is shown this once. `days` is how long it works."""

    days = serializers.IntegerField(min_value=1, max_value=TOKEN_MOST_DAYS, write_only=True)
    secret = serializers.CharField(read_only=True)

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "days", "secret"]
        read_only_fields = ["created_at", "expires_at", "last_used_at"]


class Me(APIView):
    """The person who asks."""

    @extend_schema(responses=MeSerializer)
    def get(self, request: Request) -> Response:
        """Show your name, role and tenant, and when you signed in."""
        return Response(MeSerializer(person_of(request)).data)


class OwnTokenList(generics.ListAPIView[Token]):
    """One's own tokens; POST makes one."""

    serializer_class = TokenSerializer

    def get_queryset(self) -> Any:
        """Return one's own."""
        if getattr(self, "swagger_fake_view", False):
            return Token.objects.none()
        return person_of(self.request).tokens.all()

    @extend_schema(operation_id="me_tokens_list")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List your tokens, without their secrets."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="me_tokens_create",
        request=NewTokenSerializer,
        responses={201: NewTokenSerializer, 409: problem("You have as many tokens as anybody may have")},
    )
    def post(self, request: Request) -> Response:
        """Make a token; the answer shows its secret, this once. A token that only reads may make none."""
        wanted = NewTokenSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        token, secret = token_create(
            person=person_of(request),
            name=values["name"],
            scope=values.get("scope", Token.Scope.READ),
            days=values["days"],
        )
        address = request.build_absolute_uri(reverse("api:my_token", args=[token.pk]))
        answer = {**TokenSerializer(token).data, "secret": secret}
        return Response(answer, status=201, headers={"Location": address, **NO_STORE})


class OwnTokenDetail(APIView):
    """One of one's own tokens."""

    @extend_schema(operation_id="me_tokens_retrieve", responses=TokenSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show one of your tokens, without its secret."""
        return Response(TokenSerializer(_own_token(request, pk)).data)

    @extend_schema(operation_id="me_tokens_destroy", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Revoke one of your tokens at once."""
        refuse_body(request)
        token_revoke(by=person_of(request), token=_own_token(request, pk))
        return Response(status=204)


def _own_token(request: Request, pk: int) -> Token:
    # Administrators find others' tokens under people: here, everybody has their own.
    token = person_of(request).tokens.filter(pk=pk).first()
    if token is None:
        raise NotFound("There is no such token.")
    return token


class TenantSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A tenant: how many people it has, and what it holds in words."""

    id = serializers.IntegerField(source="tenant.pk", read_only=True)
    name = serializers.CharField(source="tenant.name", max_length=100)
    created_at = serializers.DateTimeField(source="tenant.created_at", read_only=True)
    people = serializers.IntegerField(read_only=True)
    holds = serializers.ListField(child=serializers.CharField(), read_only=True)


class TenantList(generics.ListAPIView[Any]):
    """Tenants; POST adds one."""

    permission_classes = ADMINISTRATORS
    serializer_class = TenantSerializer

    def get_queryset(self) -> Any:
        """Return tenants that match the search (a list: they are few, and counted with what they hold)."""
        return [] if getattr(self, "swagger_fake_view", False) else tenants_found(query_search(self.request))

    @extend_schema(parameters=[SEARCH])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List tenants; administrators only."""
        return super().get(request, *args, **kwargs)

    @extend_schema(responses={201: TenantSerializer})
    def post(self, request: Request) -> Response:
        """Add a tenant, which has nobody and holds nothing. Administrators only."""
        row = services.tenant_add(by=person_of(request), name=_validated_name(request))
        address = request.build_absolute_uri(reverse("api:tenant", args=[row.pk]))
        return Response(_tenant_data(row), status=201, headers={"Location": address})


class TenantDetail(APIView):
    """One tenant."""

    permission_classes = ADMINISTRATORS

    @extend_schema(operation_id="tenants_retrieve", responses=TenantSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show a tenant; administrators only."""
        return Response(_tenant_data(tenant_by(pk)))

    @extend_schema(operation_id="tenants_partial_update", request=TenantSerializer, responses=TenantSerializer)
    def patch(self, request: Request, pk: int) -> Response:
        """Give a tenant another name; administrators only."""
        row = tenant_by(pk)
        return Response(
            _tenant_data(services.tenant_edit(by=person_of(request), tenant=row, name=_validated_name(request)))
        )

    @extend_schema(
        operation_id="tenants_destroy",
        responses={204: None, 409: problem("It still has people or holds something")},
    )
    def delete(self, request: Request, pk: int) -> Response:
        """Remove a tenant that has nobody and holds nothing. Administrators only."""
        row = tenant_by(pk)
        refuse_body(request)
        services.tenant_remove(by=person_of(request), tenant=row)
        return Response(status=204)


def tenant_by(pk: int) -> Tenant:
    """Return a tenant; raises NotFound."""
    row = Tenant.objects.filter(pk=pk).first()
    if row is None:
        raise NotFound("There is no such tenant.")
    return row


def _validated_name(request: Request) -> str:
    wanted = TenantSerializer(data=request.data)
    wanted.is_valid(raise_exception=True)
    name: str = wanted.validated_data["tenant"]["name"]
    return name


def _tenant_data(row: Tenant) -> Any:
    holds = holdings_of([row.pk]).get(row.pk, [])
    return TenantSerializer({"tenant": row, "people": row.people.count(), "holds": holds}).data
