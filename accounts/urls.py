"""Addresses of people."""

from __future__ import annotations

from django.urls import path

from accounts import token_views
from accounts import views as accounts_views
from accounts.approvals import views as approval_views
from accounts.audit import views as audit_views
from accounts.identity_providers import views as provider_views
from accounts.second_factor import sign_in_views as factor_sign_in_views
from accounts.second_factor import views as factor_views
from accounts.sign_in import account_views
from accounts.sign_in import provider_views as sign_in_provider_views
from accounts.sign_in import views as sign_in_views

app_name = "accounts"
urlpatterns = [
    path("sign-in/", sign_in_views.SignIn.as_view(), name="sign_in"),
    path("sign-in/forgotten/", account_views.password_forgotten, name="password_forgotten"),
    path("sign-in/password/<uidb64>/<token>/", account_views.PasswordNew.as_view(), name="password_new"),
    path("sign-in/<int:pk>/", sign_in_provider_views.provider_start, name="provider_start"),
    path("sign-in/<int:pk>/answer/", sign_in_provider_views.provider_callback, name="provider_callback"),
    path("sign-out/", sign_in_views.SignOut.as_view(), name="sign_out"),
    path("sign-in/passkey/", factor_sign_in_views.PasskeySignIn.as_view(), name="sign_in_passkey"),
    path("sign-in/second-factor/", factor_sign_in_views.second_factor, name="second_factor"),
    path("people/", accounts_views.people, name="people"),
    path("people/add/", accounts_views.person_add, name="person_add"),
    path("people/service-accounts/add/", accounts_views.service_add, name="service_add"),
    path("people/<int:pk>/", accounts_views.person, name="person"),
    path("people/<int:pk>/password/", accounts_views.person_password, name="person_password"),
    path("people/<int:pk>/sessions/end/", account_views.person_sessions_end, name="person_sessions_end"),
    path("people/<int:pk>/tokens/add/", token_views.service_token_add, name="service_token_add"),
    path("tokens/", token_views.tokens, name="tokens"),
    path("tokens/csv/", token_views.tokens_csv, name="tokens_csv"),
    path("people/<int:pk>/second-factor/", factor_views.person_second_factor, name="person_second_factor"),
    path("tenants/", accounts_views.tenants, name="tenants"),
    path("tenants/add/", accounts_views.tenant_add, name="tenant_add"),
    path("approvals/", approval_views.approvals, name="approvals"),
    path("approvals/policy/", approval_views.approval_policy, name="approval_policy"),
    path("approvals/<int:pk>/", approval_views.approval, name="approval"),
    path("approvals/<int:pk>/decision/", approval_views.approval_decision, name="approval_decision"),
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
    path("account/locale/", accounts_views.account_locale, name="account_locale"),
    path("account/password/", accounts_views.account_password, name="account_password"),
    path("account/second-factor/", factor_views.second_factor_enrol, name="second_factor_enrol"),
    path("account/passkeys/add/", factor_views.passkey_add, name="passkey_add"),
    path("account/passkeys/save/", factor_views.passkey_save, name="passkey_save"),
    path("account/passkeys/<int:pk>/", factor_views.passkey, name="passkey"),
    path("account/passkeys/<int:pk>/remove/", factor_views.passkey_remove, name="passkey_remove"),
    path("account/authenticator/", factor_views.authenticator, name="authenticator"),
    path("account/authenticator/remove/", factor_views.authenticator_remove, name="authenticator_remove"),
    path("account/recovery-codes/", factor_views.recovery_codes, name="recovery_codes"),
    path("account/confirmation/", account_views.confirmation, name="confirmation"),
    path("account/end/", account_views.access_end, name="access_end"),
    path("account/sessions/end/", account_views.sessions_end, name="sessions_end"),
    path("account/sessions/<uuid:number>/end/", account_views.session_end, name="session_end"),
    path("account/tokens/", token_views.token_add, name="token_add"),
    path("account/tokens/<int:pk>/revoke/", token_views.token_revocation, name="token_revoke"),
]
