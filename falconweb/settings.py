"""Django settings, flat, from the one typed Config."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import dj_database_url
from csp.constants import NONE, SELF
from servestatic.compress import Compressor

from falconweb.config import BASE_DIR, Config, MailServer

# Matrices here are small: BLAS threads would wait for each other many times longer than a single one computes. Read
# when numpy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

CONFIG = Config.from_environment()
# The database has sessions and password hashes: only this account may access the folder.
CONFIG.data.mkdir(parents=True, exist_ok=True, mode=0o700)

SECRET_KEY = CONFIG.secret("secret_key", CONFIG.secret_key, size=48)
CREDENTIALS_KEYS = CONFIG.secret("credentials_key", CONFIG.credentials_key).split(",")
AUDIT_KEY = CONFIG.secret("audit_key", CONFIG.audit_key)
DEBUG = CONFIG.debug
ALLOWED_HOSTS = list(CONFIG.allowed_hosts)

INSTALLED_APPS = [
    "falconweb",
    "accounts",
    "fabric",
    "telemetry",
    "telemetry.store",
    "telemetry.history",
    "telemetry.links",
    "telemetry.alerts",
    "telemetry.events",
    "telemetry.exports",
    "benchmarks",
    "benchmarks.sweeps",
    "benchmarks.runs",
    "benchmarks.traces",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
    "axes",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "falconweb.staticfiles.StaticFiles",
]

MIDDLEWARE = [
    "falconweb.middleware.isolation_middleware",
    "falconweb.middleware.health_middleware",
    "falconweb.middleware.lock_wait_middleware",
    "falconweb.audit_middleware.audit_middleware",
    "falconweb.api.errors.problem_middleware",
    "django.middleware.security.SecurityMiddleware",
    "falconweb.middleware.no_store_middleware",
    "falconweb.middleware.policy_middleware",
    "falconweb.middleware.static_files_middleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    # Before whatever makes pages, those of errors and of strangers included.
    "falconweb.middleware.language_middleware",
    "falconweb.middleware.zone_middleware",
    # Every view requires sign-in unless it declares itself public.
    "falconweb.middleware.SignInRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "falconweb.middleware.refused_body_middleware",
    "falconweb.middleware.ErrorMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "falconweb.urls"
ASGI_APPLICATION = "falconweb.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    ["falconweb.template_loader.Loader", "django.template.loaders.app_directories.Loader"],
                )
            ],
            "builtins": ["django.templatetags.i18n"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "falconweb.navigation.site_context",
            ],
        },
    }
]

DATABASES = {
    "default": dj_database_url.parse(
        CONFIG.database_url or f"sqlite:///{CONFIG.data / 'falconweb.sqlite3'}",
        # Requests of many threads come and go: none keeps a connection that another could have.
        conn_max_age=0,
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Django's engine, with a queue for the write lock.
    DATABASES["default"]["ENGINE"] = "falconweb.sqlite"
    # WAL allows readers beside one writer; IMMEDIATE takes the write lock at the start, so that a transaction
    # never fails midway; a writer waits up to 20 s for another.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
    }
    # Threads of a test must see one database, so tests use a file, not memory.
    DATABASES["default"]["TEST"] = {
        "NAME": str(CONFIG.data / f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.sqlite3")
    }
elif DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
    # s; an unreachable server is detected soon.
    DATABASES["default"].setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
# Readings have a separate file, so that their writer and those of requests never wait for each other.
READINGS_DATABASE = "default"
if DATABASES["default"]["ENGINE"] == "falconweb.sqlite":
    READINGS_DATABASE = "readings"
    DATABASES["readings"] = {
        "ENGINE": "falconweb.sqlite.readings",
        "NAME": str(CONFIG.data / "readings.sqlite3"),
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # SQLite's default page size: chunks fill larger ones by three quarters at most.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
        "TEST": {"NAME": str(CONFIG.data / f"test-readings-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.sqlite3")},
    }
DATABASE_ROUTERS = ["telemetry.store.router.ReadingsRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = CONFIG.redis_url or "redis://127.0.0.1:6379/0"
CHANNEL_LAYERS = {
    "default": {"BACKEND": "telemetry.live.channel_layer.StrictChannelLayer", "CONFIG": {"hosts": [REDIS_URL]}}
}
# Redis responds immediately or is unreachable: no request waits for it longer than this.
REDIS_TIMEOUTS = {"socket_timeout": 3.0, "socket_connect_timeout": 3.0}
CACHES = {
    "default": {
        "BACKEND": "falconweb.cache.JsonCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": dict(REDIS_TIMEOUTS),
    }
}

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "accounts.sign_in.backends.LocalBackend",
    "accounts.sign_in.backends.DirectoryBackend",
    "accounts.sign_in.backends.OpenIdBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "accounts.sign_in.passwords.MaximumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "accounts.sign_in.passwords.GuessablePasswordValidator"},
]
PASSWORD_RESET_TIMEOUT = 3600  # s, of a link in a mail
PASSWORD_HASHERS = ["accounts.sign_in.security.BoundedArgon2PasswordHasher"]
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/sign-in/"

# Ten wrong passwords for one person from one address lock that pair for 15 minutes: a stranger elsewhere cannot lock
# the person out, and guessing from one place is slow.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 0.25
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_TEMPLATE = "accounts/sign_in/locked.html"
AXES_HTTP_RESPONSE_CODE = 429
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
AXES_CLIENT_IP_CALLABLE = "accounts.sign_in.security.client_address"
# Failed sign-ins are stored with their form data: fields with passwords to mask, besides `password`.
AXES_SENSITIVE_PARAMETERS = ["username", "ip_address", "current", "new", "again", "code", "credential"]

SESSION_ENGINE = "accounts.sign_in.security"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = int(CONFIG.session_hours * 3600)
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "falconweb.views.csrf_failure"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = CONFIG.https
if CONFIG.https:
    # For this host name only: this site must not decide for other names of the domain, irrevocably for a year.
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if CONFIG.trusted_proxies else None
    SESSION_COOKIE_NAME = "__Host-falconweb"
    CSRF_COOKIE_NAME = "__Host-falconweb-csrf"
    CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in CONFIG.allowed_hosts if host != "*"]
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Plotly creates an empty <style> and adds its rules by script. This is the hash of the empty string: it allows an empty
# element and no inline style with content.
EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF, EMPTY_STYLE],
        "img-src": [SELF, "data:", "blob:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "manifest-src": [SELF],
        # The first for browsers that know no reporting endpoints yet.
        "report-uri": ["/csp-reports/"],
        "report-to": ["csp"],
    }
}

STATIC_URL = "/static/"
STATIC_ROOT = CONFIG.data / "static"
STATICFILES_DIRS: list[Path | tuple[str, Path]] = [BASE_DIR / "static"]
if (PLOTLY := BASE_DIR / "node_modules" / "plotly.js-basic-dist-min").is_dir():
    STATICFILES_DIRS.append(("vendor", PLOTLY))
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "falconweb.staticfiles.HashedStaticFilesStorage"},
}
SERVESTATIC_AUTOREFRESH = DEBUG
SERVESTATIC_KEEP_ONLY_HASHED_FILES = True
# Only developer tools request source maps, and they are as large as all the rest.
SERVESTATIC_SKIP_COMPRESS_EXTENSIONS = [*Compressor.SKIP_COMPRESS_EXTENSIONS, "map"]

MAIL = MailServer.from_url(CONFIG.email_url)
EMAIL_IS_SENT: bool = MAIL is not None
EMAIL_BACKEND = MAIL.backend if MAIL else "django.core.mail.backends.dummy.EmailBackend"
if MAIL is not None:
    EMAIL_HOST, EMAIL_PORT = MAIL.host, MAIL.port
    EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = MAIL.name, MAIL.password
    EMAIL_USE_TLS, EMAIL_USE_SSL = MAIL.starttls, MAIL.tls
DEFAULT_FROM_EMAIL = SERVER_EMAIL = CONFIG.email_from
LEASE_WARNING_SECONDS: tuple[int, ...] = CONFIG.lease_warning_seconds
KEEP_SECONDS: tuple[int, int, int, int] = CONFIG.keep_seconds
KEEP_EVENTS_SECONDS: int = CONFIG.keep_events_seconds

# Of a form: the limit of asgi_middleware where an allocation file is typed or uploaded.
DATA_UPLOAD_MAX_MEMORY_SIZE = 6 * 2**20

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = "falconweb.formats"

CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_TRANSPORT = "falconweb.task_queue:QueueTransport"
# Callers do not wait for an unreachable broker: beat enqueues the task again. It does so too for what a dead worker had
# taken, which without `ack_emulation` does not come again after an hour.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    **REDIS_TIMEOUTS, "socket_keepalive": True, "max_retries": 0, "ack_emulation": False,
}  # fmt: skip
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False  # nobody commands a worker by Redis
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = CELERY_RESULT_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "falconweb"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# Periods in seconds. Their messages do not expire: that would be at a time of day, by two clocks.
CELERY_BEAT_SCHEDULE = {
    "forget": {"task": "accounts.forget", "schedule": 3600.0},
    "verify the audit log": {"task": "accounts.verify_audit", "schedule": 86400.0},
    "summarise refusals": {"task": "accounts.summarise_refusals", "schedule": 300.0},
    "expire approvals": {"task": "accounts.expire_approvals", "schedule": 60.0},
    "forget answers": {"task": "fabric.forget_answers", "schedule": 3600.0},
    "recover operations": {"task": "fabric.recover_operations", "schedule": 5.0},
    "tend leases": {"task": "fabric.tend_leases", "schedule": 60.0},
    "tend failures": {"task": "fabric.tend_failures", "schedule": 10.0},
    "tend exports": {"task": "exports.tend", "schedule": 2.0},
    "tidy exports": {"task": "exports.tidy", "schedule": 3600.0},
    "events: catch up": {"task": "events.catch_up", "schedule": 60.0},
    "events: forget": {"task": "events.forget", "schedule": 3600.0},
    "alerts: notify": {"task": "alerts.notify", "schedule": 3.0},
    "alerts: watch chassis": {"task": "alerts.watch_chassis", "schedule": 10.0},
    "alerts: forget": {"task": "alerts.forget", "schedule": 3600.0},
    "note activity": {"task": "telemetry.note_activity", "schedule": 60.0},
    "roll readings up": {"task": "telemetry.store.roll_up", "schedule": 60.0},
    "remove old readings": {"task": "telemetry.store.clean", "schedule": 120.0},
    "check the database files": {"task": "telemetry.store.check", "schedule": 86400.0},
    "tend sweeps": {"task": "sweeps.tend", "schedule": 2.0},
    "tend runs": {"task": "runs.tend", "schedule": 1.0},
    "end strays of runs": {"task": "runs.end_strays", "schedule": 30.0},
    "forget links": {"task": "links.forget", "schedule": 3600.0},
}

# Exports never access anything outside of it.
EXPORTS_FOLDER = Path(CONFIG.exports).resolve() if CONFIG.exports else CONFIG.data / "exports"

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "falconweb.api.authentication.SessionAuthentication",
        "falconweb.api.authentication.TokenAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["core.api.fields.BoundedJSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "core.api.fields.FormatNegotiation",
    "DEFAULT_PAGINATION_CLASS": "core.api.fields.BoundedPagination",
    "DEFAULT_SCHEMA_CLASS": "falconweb.api.openapi.DocumentedAutoSchema",
    "EXCEPTION_HANDLER": "falconweb.api.errors.problem_response",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "FalconWeb",
    "DESCRIPTION": "See and compose PCIe chassis. Errors are problem documents (RFC 9457).",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "ENUM_NAME_OVERRIDES": {
        "AlertSeverityEnum": "telemetry.alerts.models.AlertSeverity",
        "AlertScopeEnum": "telemetry.alerts.rules.SCOPES",
        "RunStateEnum": "benchmarks.runs.models.Run.State",
        "ProvenanceEnum": "benchmarks.runs.models.Run.Provenance",
        "ScopeEnum": "accounts.models.Token.Scope",
        "PersonKindEnum": "accounts.models.PersonKind",
        "ExportRunStateEnum": "telemetry.exports.models.ExportRun.State",
        "EventSeverityEnum": "telemetry.events.models.EventSeverity",
        "LeaseStateEnum": "fabric.leases.models.Lease.State",
        "HeldKindEnum": "fabric.leases.models.KINDS",
        "PlanStateEnum": "fabric.operations.models.Plan.State",
        "OperationStateEnum": "fabric.operations.models.Operation.State",
        "FailureStateEnum": "fabric.failures.models.Failure.State",
        "FailureChoiceEnum": "fabric.failures.models.FailurePolicy.Choice",
        "FigureSourceEnum": "benchmarks.figures.rows.MARK_SOURCES",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "falconweb.api.openapi.declare_problems",
    ],
}

# Warnings of libraries are logged too.
logging.captureWarnings(CONFIG.log == "json")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"()": "falconweb.logs.PlainLines", "fmt": "%(asctime)s %(levelname)s %(name)s %(message)s"},
        "json": {"()": "falconweb.logs.JsonLines"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": CONFIG.log}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "axes": {"level": "WARNING"},
        # Celery's three lines per scheduled task are not informative.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
    },
}
# W005 and W021 recommend HSTS for all subdomains and preloading: see SECURE_HSTS_SECONDS.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
