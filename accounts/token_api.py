"""Tokens by the API: one's own, those of a person, and all of them."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.api import shown_once
from accounts.audit.actions import Action
from accounts.declaration import declare
from accounts.models import Token, User
from accounts.permissions import ADMINISTRATORS
from accounts.selectors import TokenFilter, find_tokens
from accounts.token_services import MAX_ADDRESSES, MAX_TOKEN_DAYS, TOKEN_SCOPES, token_create, token_revoke
from accounts.viewsets import ResourceViewSet, command
from accounts.visibility import row_or_404
from core.api.fields import SEARCH
from core.api.requests import StrictSerializer, problem, refuse_body, validated_body

TOO_MANY = "There are as many tokens as anybody may have"


class TokenSerializer(serializers.ModelSerializer[Token]):
    """A key to the API, without its secret.

    `scopes` narrow it to areas, and `addresses` to networks; empty ones to none. `parent_id` is the token that made it.
    """

    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=TOKEN_SCOPES), required=False, max_length=len(TOKEN_SCOPES)
    )
    addresses = serializers.ListField(
        child=serializers.CharField(max_length=50), required=False, max_length=MAX_ADDRESSES
    )
    parent_id = serializers.IntegerField(read_only=True, allow_null=True)

    class Meta:
        model = Token
        fields = ["id", "name", "scope", "scopes", "addresses", "parent_id", "created_at", "expires_at", "last_used_at"]


class NewTokenSerializer(StrictSerializer, TokenSerializer):
    """A created token: `secret` is shown this once. It is valid for `days`."""

    days = serializers.IntegerField(min_value=1, max_value=MAX_TOKEN_DAYS, write_only=True)
    secret = serializers.CharField(read_only=True)

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "days", "secret"]
        read_only_fields = ["parent_id", "created_at", "expires_at", "last_used_at"]


@extend_schema_view(get=extend_schema(operation_id="people_tokens_list"))
class PersonTokens(generics.ListAPIView[Token]):
    """List a person's tokens, without secrets; administrators only."""

    permission_classes = ADMINISTRATORS
    serializer_class = TokenSerializer

    def get_queryset(self) -> Any:
        """Return the person's tokens."""
        return row_or_404(User.objects.all(), self.kwargs["pk"], "person").tokens.all()

    @declare(audited_as=Action.TOKEN_CREATE, fresh_sign_in=True)
    @extend_schema(
        operation_id="people_tokens_create",
        request=NewTokenSerializer,
        responses={201: NewTokenSerializer, 409: problem(TOO_MANY)},
    )
    def post(self, request: Request, pk: int) -> Response:
        """Create a token of a service account; administrators only."""
        person: User = row_or_404(User.objects.all(), pk, "person")
        values = validated_body(NewTokenSerializer, request)
        values.setdefault("scope", Token.Scope.READ)
        token, secret = token_create(person=person, by=person_of(request), **values)
        return shown_once(Response(TokenSerializer(token).data, status=201), secret=secret)


class PersonToken(APIView):
    """One token of a person."""

    permission_classes = ADMINISTRATORS

    @declare(audited_as=Action.TOKEN_REVOKE)
    @extend_schema(operation_id="people_tokens_destroy", responses={204: None})
    def delete(self, request: Request, pk: int, token_id: int) -> Response:
        """Revoke a person's token at once; administrators only."""
        token = row_or_404(Token.objects.select_related("person").filter(person__pk=pk), token_id, "token")
        refuse_body(request)
        token_revoke(by=person_of(request), token=token)
        return Response(status=204)


@extend_schema_view(get=extend_schema(operation_id="me_tokens_list"))
class OwnTokenList(generics.ListAPIView[Token]):
    """List your tokens, without their secrets."""

    serializer_class = TokenSerializer

    def get_queryset(self) -> Any:
        """Return one's own."""
        return person_of(self.request).tokens.all()

    @declare(audited_as=Action.TOKEN_CREATE, fresh_sign_in=True)
    @extend_schema(
        operation_id="me_tokens_create",
        request=NewTokenSerializer,
        responses={201: NewTokenSerializer, 409: problem(TOO_MANY)},
    )
    def post(self, request: Request) -> Response:
        """Create a token; the answer shows its secret, this once.

        One that a token makes has at most its rights, ends when it does, and is revoked with it. A read-only token may
        not make any.
        """
        values = validated_body(NewTokenSerializer, request)
        token, secret = token_create(
            person=person_of(request),
            name=values["name"],
            scope=values.get("scope", Token.Scope.READ),
            days=values["days"],
            scopes=values.get("scopes", ()),
            addresses=values.get("addresses", ()),
        )
        return shown_once(OwnTokenViewSet(request=request).answer(token, 201), secret=secret)


class OwnTokenViewSet(ResourceViewSet):
    """One of one's own tokens. Administrators find others' tokens under people: here, everybody has their own."""

    kind = "token"
    serializer_class = TokenSerializer
    address = "api:my_token"

    def find_row(self, pk: object) -> Any:
        """Return a token of the person."""
        return row_or_404(self.person.tokens.all(), pk, self.kind)

    def retrieve(self, request: Request, pk: int) -> Response:
        """Show one of your tokens, without its secret."""
        return self.answer(self.find_row(pk))

    @command(audited_as=Action.TOKEN_REVOKE, status=204)
    def destroy(self, token: Token, values: dict[str, Any]) -> None:
        """Revoke one of your tokens at once."""
        token_revoke(by=self.person, token=token)


class AnyTokenSerializer(TokenSerializer):
    """A token, with whose it is."""

    person_id = serializers.IntegerField(read_only=True)
    username = serializers.CharField(source="person.username", read_only=True)
    kind = serializers.CharField(source="person.kind", read_only=True)

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "person_id", "username", "kind"]


@extend_schema_view(
    get=extend_schema(
        parameters=[
            SEARCH,
            OpenApiParameter("scope", OpenApiTypes.STR, enum=Token.Scope.values),
            OpenApiParameter("state", OpenApiTypes.STR, enum=list(TokenFilter.STATES)),
        ]
    )
)
class TokenList(generics.ListAPIView[Token]):
    """List everybody's tokens, newest first, without secrets; administrators only."""

    permission_classes = ADMINISTRATORS
    serializer_class = AnyTokenSerializer

    def get_queryset(self) -> Any:
        """Return the tokens that the query keeps."""
        return find_tokens(TokenFilter.of(self.request.query_params))


urlpatterns = [
    path("me/tokens/", OwnTokenList.as_view(), name="my_tokens"),
    path("me/tokens/<int:pk>/", OwnTokenViewSet.as_view({"get": "retrieve", "delete": "destroy"}), name="my_token"),
    path("people/<int:pk>/tokens/", PersonTokens.as_view(), name="person_tokens"),
    path("people/<int:pk>/tokens/<int:token_id>/", PersonToken.as_view(), name="person_token"),
    path("tokens/", TokenList.as_view(), name="tokens"),
]
