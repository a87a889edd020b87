"""Addresses of people."""

from __future__ import annotations

from django.urls import path

from accounts import views as accounts_views
from accounts.audit import views as audit_views
from accounts.identity_providers import views as provider_views
from accounts.sign_in import provider_views as sign_in_provider_views
from accounts.sign_in import views as sign_in_views

app_name = "accounts"
urlpatterns = [
    path("sign-in/", sign_in_views.SignIn.as_view(), name="sign_in"),
    path("sign-in/<int:pk>/", sign_in_provider_views.provider_start, name="provider_start"),
    path("sign-in/<int:pk>/answer/", sign_in_provider_views.provider_callback, name="provider_callback"),
    path("sign-out/", sign_in_views.SignOut.as_view(), name="sign_out"),
    path("people/", accounts_views.people, name="people"),
    path("people/add/", accounts_views.person_add, name="person_add"),
    path("people/<int:pk>/", accounts_views.person, name="person"),
    path("people/<int:pk>/password/", accounts_views.person_password, name="person_password"),
    path("tenants/", accounts_views.tenants, name="tenants"),
    path("tenants/add/", accounts_views.tenant_add, name="tenant_add"),
    path("identity-providers/", provider_views.providers, name="identity_providers"),
    path("identity-providers/add/", provider_views.provider_add, name="identity_provider_add"),
    path("identity-providers/<int:pk>/", provider_views.provider, name="identity_provider"),
    path("identity-providers/<int:pk>/rules/", provider_views.provider_rules, name="identity_provider_rules"),
    path("identity-providers/<int:pk>/test/", provider_views.provider_test, name="identity_provider_test"),
    path("identity-providers/<int:pk>/removal/", provider_views.provider_remove, name="identity_provider_remove"),
    path("identity-providers/<int:pk>/people/", provider_views.link, name="identity_link"),
    path("identity-providers/links/<int:pk>/removal/", provider_views.unlink, name="identity_unlink"),
    path("audit/", audit_views.audit, name="audit"),
    path("audit/<int:pk>/", audit_views.audit_entry, name="audit_entry"),
    path("audit/export/", audit_views.audit_export, name="audit_export"),
    path("audit/verification/", audit_views.audit_verification, name="audit_verification"),
    path("account/", accounts_views.account, name="account"),
    path("account/password/", accounts_views.account_password, name="account_password"),
    path("account/tokens/", accounts_views.token_add, name="token_add"),
    path("account/tokens/<int:pk>/revoke/", accounts_views.token_revoke, name="token_revoke"),
]
