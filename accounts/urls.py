"""Addresses of people."""

from __future__ import annotations

from django.contrib.auth import views as auth
from django.contrib.auth.decorators import login_not_required
from django.urls import path

app_name = "accounts"
urlpatterns = [
    path(
        "sign-in/",
        login_not_required(
            auth.LoginView.as_view(template_name="accounts/sign_in.html", redirect_authenticated_user=True)
        ),
        name="sign_in",
    ),
    path("sign-out/", auth.LogoutView.as_view(), name="sign_out"),
]
