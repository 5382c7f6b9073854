"""All settings of the portal; `docs/configuration.md` explains each variable read here."""

import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from csp.constants import SELF
from django.core.exceptions import ImproperlyConfigured

from gpuportal import env
from gpuportal.env import SENTINEL, SentinelUrl, bound_sessions, database
from gpuportal.people import people
from gpuportal.single_sign_on import single_sign_on
from gpuportal.telemetry.logs import logging_settings
from gpuportal.telemetry.tracing import start_sentry

# A person who mistyped a variable reads one sentence, whatever they started.
sys.excepthook = env.report_uncaught
BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = env.folder("GPUPORTAL_VAR_DIR", BASE_DIR / "var")

PRODUCTION = env.one_of("GPUPORTAL_ENV", "development", ("development", "production")) == (
    "production"
)
DEBUG = env.flag("GPUPORTAL_DEBUG", default=False)
if PRODUCTION and DEBUG:
    raise ImproperlyConfigured(
        "GPUPORTAL_DEBUG=yes shows settings and code to everybody, so it cannot be had with "
        "GPUPORTAL_ENV=production: take one of them out"
    )
_DEVELOPMENT_KEY = "development-only-key-never-used-in-production-0000000000"
SECRET_KEY = env.text("GPUPORTAL_SECRET_KEY", "" if PRODUCTION else _DEVELOPMENT_KEY)
if PRODUCTION and (
    len(SECRET_KEY) < 50 or len(set(SECRET_KEY)) < 20 or SECRET_KEY == _DEVELOPMENT_KEY
):
    raise ImproperlyConfigured(
        "GPUPORTAL_SECRET_KEY (or GPUPORTAL_SECRET_KEY_FILE) must be a random text of 50 "
        "characters or more, 20 of them different, when GPUPORTAL_ENV=production. To make one: "
        "python3 -c 'import secrets; print(secrets.token_urlsafe(64))'"
    )
# While keys change: what the old one signed or sealed is still read, and sealed anew each day.
SECRET_KEY_FALLBACKS = [old] if (old := env.text("GPUPORTAL_SECRET_KEY_OLD", "")) else []
ALLOWED_HOSTS = env.words("GPUPORTAL_ALLOWED_HOSTS", "" if PRODUCTION else "127.0.0.1,localhost")
if PRODUCTION and (not ALLOWED_HOSTS or "*" in ALLOWED_HOSTS):
    raise ImproperlyConfigured(
        "GPUPORTAL_ALLOWED_HOSTS must name the hosts under which the portal is asked for when "
        "GPUPORTAL_ENV=production, as gpu.example.org; * would let anybody choose the host in links"
    )
CSRF_TRUSTED_ORIGINS = env.origins("GPUPORTAL_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    # Before Django's own, whose commands for accounts it replaces: they are told to the audit.
    "apps.accounts",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "gpuportal.static_files.PortalStaticFiles",
    "rest_framework",
    "drf_spectacular",
    "django_htmx",
    "csp",
    "axes",
    "allauth.account",
    "allauth.socialaccount",
    "apps.clusters",
    "apps.usage",
    "apps.goodput",
    "apps.pending",
    "apps.quotas",
    "apps.fairness",
    "apps.costs",
    "apps.planning",
    "apps.quota_requests",
    "apps.alerts",
    "apps.operations",
    "apps.web",
    "apps.api",
]

MIDDLEWARE = [
    # Before all that looks at the host or at TLS: probes and Prometheus ask a pod by its IP, over
    # plain HTTP.
    "gpuportal.telemetry.requests.RequestMiddleware",
    "gpuportal.telemetry.probes.ProbeMiddleware",
    "gpuportal.telemetry.metrics_server.MetricsMiddleware",
    # So early that what the others answer themselves is not kept either.
    "apps.web.middleware.NoStoreMiddleware",
    "apps.web.middleware.FeaturesMiddleware",
    # So early that what others refuse on the way (a host, plain HTTP) and files have theirs too.
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # After WhiteNoise, whose files are compressed beforehand. Tokens of forms are masked anew in
    # each answer and its length varies at random, so that compression tells nothing of them.
    "django.middleware.gzip.GZipMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    # Last, as it asks: the page for who failed too often takes the place of the view's.
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "gpuportal.urls"
WSGI_APPLICATION = "gpuportal.wsgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# ---------------------------------------------------------------- database

DATABASES = {"default": database(env.text("DATABASE_URL", f"sqlite:///{VAR_DIR / 'portal.db'}"))}
# PgBouncer in transaction mode: sessions are shared, so nothing may be left in one.
PGBOUNCER = env.flag("GPUPORTAL_PGBOUNCER", default=False)
# PostgreSQL counts them in milliseconds, of which it takes 2**31.
_SESSION_SECONDS = {
    "statement_seconds": env.whole("GPUPORTAL_STATEMENT_SECONDS", 300, most=2_000_000),
    "lock_seconds": env.whole("GPUPORTAL_LOCK_SECONDS", 30, most=2_000_000),
    "idle_transaction_seconds": env.whole(
        "GPUPORTAL_IDLE_TRANSACTION_SECONDS", 600, most=2_000_000
    ),
}
if _READ_URL := env.text("GPUPORTAL_DATABASE_READ_URL", ""):
    DATABASES["replica"] = env.replica(_READ_URL, DATABASES["default"])
    DATABASE_ROUTERS = ["gpuportal.replica.ReplicaRouter"]
    MIDDLEWARE.append("gpuportal.replica.ReplicaMiddleware")
for _database in DATABASES.values():
    bound_sessions(_database, pooled=PGBOUNCER, **_SESSION_SECONDS)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# ---------------------------------------------------------------- cache, Celery

# How Sentinels know the Redis that a `sentinel://` URL asks them for, and their own password.
_MASTER: dict[str, Any] = {
    "master_name": env.text("GPUPORTAL_REDIS_MASTER", "mymaster"),
    "sentinel_kwargs": {"password": env.text("GPUPORTAL_SENTINEL_PASSWORD", "") or None},
}
_CACHE_URL = env.text("CACHE_URL", "locmem://")
# A page must not wait for a cache that is away.
_CACHE_TIMES = {"socket_connect_timeout": 1, "socket_timeout": 1}
if _CACHE_URL.startswith(("redis://", "rediss://")):
    env.check_redis("CACHE_URL", _CACHE_URL)
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": _CACHE_URL,
            "OPTIONS": _CACHE_TIMES,
        }
    }
elif _CACHE_URL.startswith(SENTINEL):
    SentinelUrl.read("CACHE_URL", _CACHE_URL)
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            # A list of one: Django would split its commas into servers.
            "LOCATION": [_CACHE_URL],
            "OPTIONS": {"pool_class": "gpuportal.sentinel.SentinelPool", **_MASTER, **_CACHE_TIMES},
        }
    }
elif _CACHE_URL == "locmem://":
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
else:
    raise ImproperlyConfigured(
        "CACHE_URL must be redis://HOST:PORT/DB, sentinel://HOST:PORT,HOST:PORT/DB or locmem://"
    )

TASK_SECONDS = env.whole("GPUPORTAL_TASK_SECONDS", 3600, least=60)
CELERY_BROKER_URL = env.text("CELERY_BROKER_URL", "filesystem://localhost")
if CELERY_BROKER_URL.startswith("filesystem://"):
    _QUEUE_DIR = VAR_DIR / "queue"
    for _folder in ("messages", "processed", "control"):
        (_QUEUE_DIR / _folder).mkdir(parents=True, exist_ok=True)
    CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {
        "data_folder_in": str(_QUEUE_DIR / "messages"),
        "data_folder_out": str(_QUEUE_DIR / "messages"),
        "processed_folder": str(_QUEUE_DIR / "processed"),
        "control_folder": str(_QUEUE_DIR / "control"),
        "store_processed": False,
    }
    # This broker gets Celery's pool of pipes, in which a killed child keeps a lock for ever: its
    # worker says "received" and runs nothing. Without children there is none to be killed.
    CELERY_WORKER_POOL = "solo"
else:
    # A broker that is away must not hold a web request or beat for minutes.
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "socket_connect_timeout": 5,
        "socket_timeout": 30,
        # A task that runs longer would be handed to a second worker.
        "visibility_timeout": TASK_SECONDS + 600,
    }
    if CELERY_BROKER_URL.startswith(SENTINEL):
        CELERY_BROKER_URL = SentinelUrl.read("CELERY_BROKER_URL", CELERY_BROKER_URL).for_celery()
        CELERY_BROKER_TRANSPORT_OPTIONS |= _MASTER
    else:
        env.check_redis("CELERY_BROKER_URL", CELERY_BROKER_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
# Asked to end first, so that files are closed; what does not listen is killed. A lease that it
# held is free when its time is over.
CELERY_TASK_SOFT_TIME_LIMIT, CELERY_TASK_TIME_LIMIT = TASK_SECONDS, TASK_SECONDS + 60
# By kind of work, so that none stands behind another's. What no route names is collected, or
# computed from that.
QUEUES = ("collect", "backfill", "pending", "exports", "alerts", "quota_requests")
CELERY_TASK_DEFAULT_QUEUE = "collect"
# A worker that names no queues takes from all of them.
CELERY_TASK_QUEUES: dict[str, Any] = {name: {} for name in QUEUES}
# Exact names win over patterns.
CELERY_TASK_ROUTES = {
    # An hour that has just closed is behind one hour of a backfill at most, however many are there.
    "usage.backfill_hour": {"queue": "backfill"},
    "pending.*": {"queue": "pending"},
    # A replay of two weeks takes seconds a tier: no reader needs it at once.
    "planning.*": {"queue": "exports"},
    "goodput.*": {"queue": "exports"},
    "costs.write_export": {"queue": "exports"},
    "costs.tend_exports": {"queue": "exports"},
    "costs.keep_closed_files": {"queue": "exports"},
    "alerts.*": {"queue": "alerts"},
    "operations.*": {"queue": "alerts"},
    "quotas.note_budget_alerts": {"queue": "alerts"},
    "costs.note_money_alerts": {"queue": "alerts"},
    "quota_requests.*": {"queue": "quota_requests"},
    # Only the worker of this queue has the credentials that change quotas.
    "operations.examine_writers": {"queue": "quota_requests"},
    # The whole audit is read once a day, which an approved change must not wait for.
    "quota_requests.check_audit": {"queue": "alerts"},
}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CONCURRENCY = env.whole("GPUPORTAL_WORKER_CONCURRENCY", 1, least=1)
CELERY_TASK_ACKS_LATE = True
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "apps.operations.beat:DatabaseScheduler"
BEAT_ALIVE_FILE = VAR_DIR / "beat-alive"
PENDING_SECONDS = env.whole("GPUPORTAL_PENDING_SECONDS", 15, least=1)


_CLOCKS_DIFFER = timedelta(minutes=30)


def _every(task: str, **interval: float) -> dict[str, Any]:
    """Return an entry of beat; one that no worker had time for is not worth doing beside the next.

    Hours that are long past come a bounded number a run: short intervals catch up with them, and
    cost next to nothing where nothing is due. Beat's clock says when a task expires, and the
    worker's whether it has: a worker that is ahead would discard every one without the slack.
    """
    schedule = timedelta(**interval)
    expires = schedule + _CLOCKS_DIFFER
    return {"task": task, "schedule": schedule, "options": {"expires": expires.total_seconds()}}


_SCHEDULE_SECONDS = env.whole("GPUPORTAL_SCHEDULE_SECONDS", 60, least=1)
CELERY_BEAT_SCHEDULE = {
    "schedule-collections": _every("usage.schedule_collections", seconds=_SCHEDULE_SECONDS),
    "roll-days": _every("usage.roll_days", minutes=5),
    "prune": _every("usage.prune", hours=24),
    "check-devices": _every("clusters.schedule_device_checks", minutes=5),
    "refresh-pending": _every("pending.schedule_refreshes", seconds=PENDING_SECONDS),
    "roll-pending-days": _every("pending.roll_days", minutes=5),
    "end-retired-pending": _every("pending.end_retired", minutes=5),
    "prune-pending": _every("pending.prune", hours=24),
    "roll-quota-hours": _every("quotas.roll_hours", minutes=1),
    "note-budget-alerts": _every("quotas.note_budget_alerts", minutes=10),
    "prune-quotas": _every("quotas.prune", hours=24),
    "compute-fairness": _every("fairness.compute_hours", minutes=1),
    "roll-fairness-days": _every("fairness.roll_days", minutes=5),
    "prune-fairness": _every("fairness.prune", hours=24),
    "store-slots": _every("planning.store_slots", minutes=5),
    "plan-capacity": _every("planning.plan_capacity", minutes=5),
    "price-hours": _every("costs.price_hours", minutes=1),
    "note-cost-alerts": _every("costs.note_money_alerts", minutes=10),
    "recommend": _every("costs.recommend", minutes=10),
    "prune-costs": _every("costs.prune", hours=24),
    "judge-nodes": _every("goodput.judge_nodes", hours=1),
    "keep-losses": _every("goodput.keep_losses", hours=1),
    "backtest": _every("planning.backtest", hours=1),
    "simulate-policies": _every("planning.simulate_policies", minutes=1),
    "replay-recommendations": _every("planning.replay_recommendations", hours=1),
    "advise-layouts": _every("planning.advise_layouts", hours=1),
    "forecast-queue-times": _every("planning.forecast_queue_times", minutes=15),
    "tend-exports": _every("costs.tend_exports", minutes=1),
    "keep-closed-files": _every("costs.keep_closed_files", hours=1),
    "send-monthly-reports": _every("operations.send_monthly_reports", minutes=30),
    "apply-requests": _every("quota_requests.schedule_executions", seconds=15),
    "watch-gitops": _every("quota_requests.watch_gitops", seconds=30),
    "start-due-bookings": _every("quota_requests.start_due", minutes=1),
    "revert-due-requests": _every("quota_requests.revert_due", minutes=1),
    "check-drift": _every("quota_requests.check_drift", minutes=1),
    "expire-requests": _every("quota_requests.expire", hours=1),
    "check-audit": _every("quota_requests.check_audit", minutes=10),
    "gather-alerts": _every("operations.gather_alerts", minutes=5),
    "deliver-alerts": _every("alerts.deliver", minutes=1),
    "prune-alerts": _every("alerts.prune", hours=24),
    "renew-seals": _every("alerts.renew_seals", hours=24),
    "clear-sessions": _every("operations.clear_sessions", hours=24),
    "doctor": _every("operations.run_doctor", minutes=15),
    "examine-writers": _every("operations.examine_writers", minutes=15),
    "heartbeat": _every("operations.note_heartbeat", seconds=30),
}

# ---------------------------------------------------------------- people

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
# After so many wrong passwords for one user name from one address (of version 6: one network of 64
# bits), both together are kept out for a while; after many more for a name from everywhere, or
# from an address for all names, the name or the address is. In the database, so that all web
# processes count together and none needs a cache.
AXES_HANDLER = "apps.web.accounts.sign_in.LoginThrottling"
AXES_FAILURE_LIMIT = 5
SIGN_IN_FAILURES_PER_NAME = 25
SIGN_IN_FAILURES_PER_PLACE = 50
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "apps.web.accounts.sign_in.client_place"
AXES_LOCKOUT_CALLABLE = "apps.web.accounts.sign_in.locked_out"
AXES_SENSITIVE_PARAMETERS = ["username", "ip_address", "csrfmiddlewaretoken", "next"]
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
# Signing in through the organization's provider. Of allauth only the exchange with the provider is
# used: it has no addresses, pages, sign-up and mails of its own here.
SINGLE_SIGN_ON = single_sign_on(production=PRODUCTION)
LOCAL_SIGN_IN = env.flag("GPUPORTAL_LOCAL_SIGN_IN", default=True)
if not LOCAL_SIGN_IN and SINGLE_SIGN_ON is None:
    raise ImproperlyConfigured(
        "GPUPORTAL_LOCAL_SIGN_IN=no without GPUPORTAL_OIDC_ISSUER leaves no way to sign in"
    )
ACCOUNT_ADAPTER = "apps.web.accounts.single_sign_on.QuietAccounts"
ACCOUNT_EMAIL_VERIFICATION = SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_ADAPTER = "apps.web.accounts.single_sign_on.PortalSignIn"
SOCIALACCOUNT_REQUESTS_TIMEOUT = 5
LOGIN_URL = "web:sign-in"
LOGIN_REDIRECT_URL = "web:home"
LOGOUT_REDIRECT_URL = "web:sign-in"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"  # Strict would lose the session on the way back from the provider
SESSION_COOKIE_AGE = 3600 * env.whole("GPUPORTAL_SESSION_HOURS", 12, least=1, most=8760)
# No script of ours reads it: forms carry their token themselves.
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = env.flag("GPUPORTAL_HTTPS", default=PRODUCTION)
# Over plain HTTP a browser would not send a Secure cookie back, and sign-in would always fail.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT
SECURE_HSTS_SECONDS = env.whole("GPUPORTAL_HSTS_SECONDS", 31_536_000) if SECURE_SSL_REDIRECT else 0
BEHIND_PROXY = env.flag("GPUPORTAL_BEHIND_PROXY", default=False)
# How many of them add to X-Forwarded-For: with fewer all users share the address of the outer one.
TRUSTED_PROXIES = env.whole("GPUPORTAL_TRUSTED_PROXIES", 1 if BEHIND_PROXY else 0, most=10)
if BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
# No inline script and no style element anywhere; style attributes are what Plotly draws with.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "style-src-attr": ["'unsafe-inline'"],
        "img-src": [SELF, "data:", "blob:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "object-src": ["'none'"],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": ["'none'"],
    }
}

# ---------------------------------------------------------------- language, time, files

LANGUAGE_CODE = "en-us"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
# Not under VAR_DIR: the image has these files, whatever is mounted there.
STATIC_ROOT = Path(env.text("GPUPORTAL_STATIC_DIR", str(BASE_DIR / "var" / "static")))
STATICFILES_DIRS: list[Any] = [BASE_DIR / "static"]
NODE_MODULES = BASE_DIR / "node_modules"
# Pinned npm packages, served as they are: (URL prefix, folder).
for _prefix, _package in (
    ("npm/tabler/css", NODE_MODULES / "@tabler" / "core" / "dist" / "css"),
    ("npm/htmx", NODE_MODULES / "htmx.org" / "dist"),
    ("npm/plotly", NODE_MODULES / "plotly.js-basic-dist-min"),
):
    if _package.is_dir():
        STATICFILES_DIRS.append((_prefix, _package))
STATICFILES_FINDERS = [
    "gpuportal.static_files.BundleFinder",
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
]
# In development files are served from where they lie. In production `collectstatic` copies them
# once, compressed, under names that tell their content, which browsers may keep for ever.
WHITENOISE_USE_FINDERS = not PRODUCTION
WHITENOISE_AUTOREFRESH = not PRODUCTION
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": (
            "whitenoise.storage.CompressedManifestStaticFilesStorage"
            if PRODUCTION
            else "django.contrib.staticfiles.storage.StaticFilesStorage"
        )
    },
}

# ---------------------------------------------------------------- API

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.api.authentication.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "apps.api.authentication.WithinScope",
    ],
    "DEFAULT_RENDERER_CLASSES": ["apps.api.problems.ProblemOrJSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.api.parameters.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "apps.api.problems.handle",
    "DEFAULT_THROTTLE_CLASSES": ["apps.api.authentication.ForgivingUserRateThrottle"],
    "DEFAULT_THROTTLE_RATES": {"user": env.rate("GPUPORTAL_API_RATE", "600/min")},
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "gpuportal",
    "DESCRIPTION": "GPU allocation, utilization and fairness per service tier.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    # Two lists have a verdict: the first one keeps the name that clients know.
    "ENUM_NAME_OVERRIDES": {
        "VerdictEnum": ["too-early", "came", "partly", "did-not-come"],
        "SimulationStateEnum": ["queued", "done", "failed"],
        "PreflightVerdictEnum": ["starts", "waits", "never"],
        "SourceEnum": ["ResourceQuota", "ClusterQueue", "Queue", "KaiQueue"],
        "LimitSourceEnum": ["ResourceQuota", "ClusterQueue", "Queue"],
    },
}

# ---------------------------------------------------------------- the portal itself

IDLE_BELOW = env.fraction("GPUPORTAL_IDLE_BELOW", 0.10)
TTFT_OBJECTIVE_MS = env.whole("GPUPORTAL_TTFT_OBJECTIVE_MS", 500, least=1)
SETTLING_SECONDS = env.whole("GPUPORTAL_SETTLING_SECONDS", 120)
LEASE_SECONDS = env.whole("GPUPORTAL_LEASE_SECONDS", 900, least=1)
HOURLY_RETENTION_DAYS = env.days("GPUPORTAL_HOURLY_RETENTION_DAYS", 90, least=1)
WORKLOAD_RETENTION_DAYS = env.days("GPUPORTAL_WORKLOAD_RETENTION_DAYS", 400, least=1)
LEDGER_RETENTION_DAYS = env.days("GPUPORTAL_LEDGER_RETENTION_DAYS", 400, least=1)
GAP_FILL_DAYS = env.days("GPUPORTAL_GAP_FILL_DAYS", 7)
PEOPLE = people()
LATE_SAMPLES_SECONDS = env.whole("GPUPORTAL_LATE_SAMPLES_SECONDS", 10_800)
METRICS_RETENTION_DAYS = env.days("GPUPORTAL_METRICS_RETENTION_DAYS", 15)
VISIBILITY = env.one_of("GPUPORTAL_VISIBILITY", "team", ("team", "open"))

COST_BASIS = env.one_of("GPUPORTAL_COST_BASIS", "allocated", ("allocated", "used"))
UNALLOCATED_POLICY = env.one_of(
    "GPUPORTAL_UNALLOCATED_POLICY", "platform", ("platform", "entitlement", "use")
)
# Empty: beside everything else that is written at run time.
EXPORTS_DIR = env.text("GPUPORTAL_EXPORTS_DIR", "")
# With a bucket it takes the place of the folder. Empty keys: as the machine or pod may sign.
EXPORTS_S3 = {
    "bucket": env.text("GPUPORTAL_EXPORTS_S3_BUCKET", ""),
    "location": env.text("GPUPORTAL_EXPORTS_S3_PREFIX", ""),
    "endpoint_url": env.text("GPUPORTAL_EXPORTS_S3_ENDPOINT", ""),
    "region_name": env.text("GPUPORTAL_EXPORTS_S3_REGION", ""),
    "access_key": env.text("GPUPORTAL_EXPORTS_S3_ACCESS_KEY", ""),
    "secret_key": env.text("GPUPORTAL_EXPORTS_S3_SECRET_KEY", ""),
}
EXPORT_DAYS = env.days("GPUPORTAL_EXPORT_DAYS", 7, least=1)
MONTHLY_MAIL_DAY = env.whole("GPUPORTAL_MONTHLY_MAIL_DAY", 2, most=28)
MONTHLY_MAIL_TO = env.words("GPUPORTAL_MONTHLY_MAIL_TO")
MONTHLY_MAIL_LEADS = env.flag("GPUPORTAL_MONTHLY_MAIL_LEADS", default=False)
PORTAL_URL = env.text("GPUPORTAL_URL", "").rstrip("/")
# Quota changes: what needs whom, for how long, and whether the portal writes at all.
REQUESTS_GITOPS_ONLY = env.flag("GPUPORTAL_REQUESTS_GITOPS_ONLY", default=False)
REQUESTS_RAISES_BY_RULE = env.flag("GPUPORTAL_REQUESTS_RAISES_BY_RULE", default=False)
REQUESTS_DECREASES_BY_RULE = env.flag("GPUPORTAL_REQUESTS_DECREASES_BY_RULE", default=False)
REQUESTS_MOST_GPUS_BY_RULE = env.amount("GPUPORTAL_REQUESTS_MOST_GPUS_BY_RULE", Decimal(2))
REQUESTS_TWO_FROM_GPUS = env.amount("GPUPORTAL_REQUESTS_TWO_FROM_GPUS", None)
REQUESTS_TWO_FROM_COST = env.amount("GPUPORTAL_REQUESTS_TWO_FROM_COST", None)
REQUESTS_MOST_DAYS = env.days("GPUPORTAL_REQUESTS_MOST_DAYS", 0)
REQUESTS_DAYS_DRAFT = env.days("GPUPORTAL_REQUESTS_DAYS_DRAFT", 90, least=1)
REQUESTS_DAYS_UNDECIDED = env.days("GPUPORTAL_REQUESTS_DAYS_UNDECIDED", 90, least=1)
REQUESTS_DAYS_APPROVED = env.days("GPUPORTAL_REQUESTS_DAYS_APPROVED", 30, least=1)
REQUESTS_DAYS_TO_COMMIT = env.days("GPUPORTAL_REQUESTS_DAYS_TO_COMMIT", 14, least=1)

PROMETHEUS_TIMEOUT_SECONDS = env.whole("GPUPORTAL_PROMETHEUS_TIMEOUT_SECONDS", 120, least=1)
PROMETHEUS_IN_FLIGHT = env.whole("GPUPORTAL_PROMETHEUS_IN_FLIGHT", 2, least=1)

# ---------------------------------------------------------------- mail; no host: none is sent

EMAIL_HOST = env.text("GPUPORTAL_MAIL_HOST", "")
EMAIL_PORT = env.port("GPUPORTAL_MAIL_PORT", 25)
EMAIL_HOST_USER = env.text("GPUPORTAL_MAIL_USER", "")
EMAIL_HOST_PASSWORD = env.text("GPUPORTAL_MAIL_PASSWORD", "")
_MAIL_SECURITY = env.one_of("GPUPORTAL_MAIL_SECURITY", "none", ("none", "starttls", "tls"))
EMAIL_USE_TLS, EMAIL_USE_SSL = _MAIL_SECURITY == "starttls", _MAIL_SECURITY == "tls"
EMAIL_TIMEOUT = 30
DEFAULT_FROM_EMAIL = env.text("GPUPORTAL_MAIL_FROM", "gpuportal@localhost")
# Ignoring an old name would allow what an administrator had ruled out.
env.refuse_renamed("GPUPORTAL_NOTICES_", "GPUPORTAL_ALERTS_")
env.refuse_renamed("GPUPORTAL_CHANGES_", "GPUPORTAL_REQUESTS_")
env.refuse_renamed("GPUPORTAL_WAITING_SECONDS", "GPUPORTAL_PENDING_SECONDS")
# Hosts that webhooks of leads may go to, by HTTP as well, whatever they resolve to.
ALERTS_HOSTS = env.words("GPUPORTAL_ALERTS_HOSTS")
# Domains of e-mail addresses in channels; none: any.
ALERTS_EMAIL_DOMAINS = env.words("GPUPORTAL_ALERTS_EMAIL_DOMAINS")
ALERTS_KEEP_DAYS = env.days("GPUPORTAL_ALERTS_KEEP_DAYS", 14, least=1)
# Levels at which something is said, ascending: shares of a quota, and hours.
ALERTS_QUOTA = env.levels("GPUPORTAL_ALERTS_QUOTA", "0.9,1")
ALERTS_IDLE_HOURS = env.levels("GPUPORTAL_ALERTS_IDLE_HOURS", "12,72")
ALERTS_WAIT_HOURS = env.levels("GPUPORTAL_ALERTS_WAIT_HOURS", "4,24")
ALERTS_GAP_HOURS = env.levels("GPUPORTAL_ALERTS_GAP_HOURS", "3,24")

# ---------------------------------------------------------------- log and metrics

LOG_LEVEL = env.one_of("GPUPORTAL_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOGGING = logging_settings(
    env.one_of("GPUPORTAL_LOG_FORMAT", "plain", ("plain", "json")), LOG_LEVEL
)
# Celery would replace the handlers of its processes by its own.
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
ACCESS_LOG = env.flag("GPUPORTAL_ACCESS_LOG", default=False)
METRICS_PORT = env.whole("GPUPORTAL_METRICS_PORT", 0, most=65_535)
METRICS_ADDRESS = env.text("GPUPORTAL_METRICS_ADDRESS", "0.0.0.0")  # noqa: S104 - scrapers are elsewhere
METRICS_TOKEN = env.text("GPUPORTAL_METRICS_TOKEN", "")
OTLP_ENDPOINT = env.text("GPUPORTAL_OTLP_ENDPOINT", "")
start_sentry(env.text("GPUPORTAL_SENTRY_DSN", ""), "production" if PRODUCTION else "development")
