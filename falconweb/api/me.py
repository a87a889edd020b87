"""Oneself by the API: who one is, and one's own keys to the API."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import person_of
from accounts.models import Role, Token
from accounts.services import TOKEN_MOST_DAYS, token_create, token_revoke
from falconweb.api.bodies import Body, refuse_body
from falconweb.api.fields import LinkedId, LinkedText
from falconweb.api.openapi import problem
from falconweb.api.people import UNCACHED, TokenSerializer
from falconweb.errors import NotFound


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


class NewTokenSerializer(Body, TokenSerializer):
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


class MyTokens(generics.ListAPIView[Token]):
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
        return Response(answer, status=201, headers={"Location": address, **UNCACHED})


class MyToken(APIView):
    """One of one's own tokens."""

    @extend_schema(operation_id="me_tokens_retrieve", responses=TokenSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """Show one of your tokens, without its secret."""
        return Response(TokenSerializer(_mine(request, pk)).data)

    @extend_schema(operation_id="me_tokens_destroy", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Revoke one of your tokens at once."""
        refuse_body(request)
        token_revoke(by=person_of(request), token=_mine(request, pk))
        return Response(status=204)


def _mine(request: Request, pk: int) -> Token:
    # Administrators find others' tokens under people: here, everybody has their own.
    token = person_of(request).tokens.filter(pk=pk).first()
    if token is None:
        raise NotFound("There is no such token.")
    return token
