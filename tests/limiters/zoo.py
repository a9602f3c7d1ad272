"""The rows: each a limiter, how it is set, what it allows, and what must come of it.

A row's `server` is a method of `world.World` with its options. `key` names it on the command line."""

from dataclasses import dataclass

ITEMS = {"method": "GET", "path": "/items", "headers": {}}
SEARCH = {"method": "POST", "path": "/search", "headers": {}}


@dataclass(frozen=True)
class Bounds:
    """What a row must reach. The share is that of the last part of a measurement, refusals are those after 10 s in %;
    `configured` is for andante with the right limit, `careful` compares andante without one with the careful client."""

    share: float
    late: float = 2.0
    seen: int = 0
    # Seconds; None: the limiter's own window.
    stall: float | None = None
    configured_share: float = 0.95
    configured_refused: int = 1
    careful_accepted: float = 0.97
    careful_refused: float = 0.05


# For APIs that tell their limit, for those that only refuse, and what the first seconds must come to.
TELLS = Bounds(0.95)
REFUSES = Bounds(0.90)
QUICK_TELLS = Bounds(0.90, late=4.0)
QUICK_REFUSES = Bounds(0.75, late=6.0)


@dataclass(frozen=True)
class Row:
    key: str
    name: str
    server: tuple
    # What it serves in a second at most, and the window in which it counts.
    rate: float
    window: float
    # The right --limit; none where no such flag can say it.
    limit: str | None
    bounds: Bounds
    # Those of the quick part; none: not part of it.
    quick: Bounds | None = None
    # What the workers ask for, in turn.
    requests: tuple = (ITEMS,)
    # How long a measurement takes at least, in seconds.
    least: float = 0
    # Seconds that each direction takes: always, and besides on average.
    way: tuple = (0, 0)
    # Why a bound is another one here.
    because: str = ""

    def tail(self, seconds):
        """How long the last part is: 30 s, or a window, but no more than half of all."""
        return min(max(30, self.window), seconds / 2)


# === npm ===


def express(*limiters):
    return "node", {"kind": "express", "limiters": limiters}


def per(seconds, limit, **options):
    return {"windowMs": seconds * 1000, "limit": limit, **options}


DRAFT = {"legacyHeaders": False}
SILENT = {"legacyHeaders": False, "standardHeaders": False}
MINUTE = 150
GET = {"method": "get", "path": "/items"}
POST = {"method": "post", "path": "/search"}
ROUTES = (ITEMS, ITEMS, ITEMS, SEARCH)
KEYS = tuple({**ITEMS, "headers": {"X-Api-Key": key}} for key in ["free", "paid"])

NODE = [
    Row("express", "express-rate-limit, 100/10s", express(per(10, 100)), 10, 10, "100/10s", TELLS),
    Row("express-6", "the same, draft-6", express(per(10, 100, standardHeaders="draft-6", **DRAFT)), 10, 10, "100/10s", TELLS),
    Row("express-7", "the same, draft-7", express(per(10, 100, standardHeaders="draft-7", **DRAFT)), 10, 10, "100/10s", TELLS),
    Row("express-8", "the same, draft-8", express(per(10, 100, standardHeaders="draft-8", **DRAFT)), 10, 10, "100/10s", TELLS),
    Row("express-silent", "the same, no headers", express(per(10, 100, **SILENT)), 10, 10, "100/10s", REFUSES),
    Row(
        "express-second", "express-rate-limit, 20/s", express(per(1, 20)), 20, 1, "20/s", TELLS, QUICK_TELLS
    ),
    Row(
        "express-minute", "express-rate-limit, 300/min, no headers", express(per(60, 300, **SILENT)), 5, 60, "300/min",
        Bounds(0.85), least=MINUTE,
    ),
    Row(
        "express-two", "two express-rate-limits, 20/s and 300/min", express(per(1, 20), per(60, 300)), 5, 60,
        "20/s,300/min", TELLS, least=MINUTE,
    ),
    Row(
        "express-two-draft", "the same, draft-8",
        express(
            per(1, 20, standardHeaders="draft-8", identifier="second", **DRAFT),
            per(60, 300, standardHeaders="draft-8", identifier="minute", **DRAFT),
        ),
        5, 60, "20/s,300/min", TELLS, least=MINUTE,
    ),
    Row(
        "express-route", "express-rate-limit, GET 100/10s, POST 10/10s of its own",
        express(per(10, 100, **GET), per(10, 10, **POST)), 11, 10, None, TELLS, requests=ROUTES,
    ),
    Row(
        "express-route-all", "express-rate-limit, 100/10s, of these POST 10/10s",
        express(per(10, 100), per(10, 10, **POST)), 10, 10, None, TELLS, requests=ROUTES,
    ),
    Row(
        "express-keys", "express-rate-limit, two keys, 20/10s and 100/10s",
        express({"windowMs": 10000, "keys": {"free": 20, "paid": 100}}), 12, 10, None, TELLS, requests=KEYS,
    ),
    Row(
        "fastify", "@fastify/rate-limit, 100/10s",
        ("node", {"kind": "fastify", "max": 100, "timeWindow": 10000}), 10, 10, "100/10s", TELLS,
    ),
    Row(
        "fastify-draft", "the same, draft headers",
        ("node", {"kind": "fastify", "max": 100, "timeWindow": 10000, "enableDraftSpec": True}), 10, 10, "100/10s", TELLS,
    ),
    Row("koa", "koa-ratelimit, 100/10s", ("node", {"kind": "koa", "max": 100, "duration": 10000}), 10, 10, "100/10s", TELLS),
    Row(
        "flexible", "rate-limiter-flexible, 100/10s",
        ("node", {"kind": "flexible", "points": 100, "duration": 10}), 10, 10, "100/10s", TELLS,
    ),
    Row(
        "hono", "hono-rate-limiter, 100/10s, draft-6",
        ("node", {"kind": "hono", "windowMs": 10000, "limit": 100}), 10, 10, "100/10s", TELLS,
    ),
    Row(
        "hapi", "hapi-rate-limit, 100/10s",
        ("node", {"kind": "hapi", "userLimit": 100, "userCache": {"expiresIn": 10000}, "pathLimit": False}),
        10, 10, "100/10s", TELLS,
    ),
    Row(
        "nest", "@nestjs/throttler, 100/10s", ("node", {"kind": "nest", "list": [{"ttl": 10000, "limit": 100}]}),
        10, 10, "100/10s", TELLS,
    ),
    Row(
        "nest-two", "@nestjs/throttler, 20/s and 300/min",
        ("node", {"kind": "nest", "list": [{"name": "short", "ttl": 1000, "limit": 20}, {"name": "long", "ttl": 60000, "limit": 300}]}),
        5, 60, "20/s,300/min", TELLS, least=MINUTE,
    ),
]

# === PyPI ===


def python(kind, **options):
    return "python", {"kind": kind, **options}


TWO = ["20 per second", "300 per minute"]

PYTHON = [
    Row("flask", "Flask-Limiter, 100/10s", python("flask_limiter", limits=["100 per 10 second"]), 10, 10, "100/10s", TELLS),
    Row(
        "flask-silent", "the same, no headers", python("flask_limiter", limits=["100 per 10 second"], headers=False),
        10, 10, "100/10s", REFUSES,
    ),
    Row(
        "flask-two", "Flask-Limiter, 20/s and 300/min", python("flask_limiter", limits=TWO), 5, 60, "20/s,300/min",
        TELLS, least=MINUTE,
    ),
    Row(
        "flask-counter", "Flask-Limiter, 100/10s, sliding-window-counter",
        python("flask_limiter", limits=["100 per 10 second"], strategy="sliding-window-counter"), 10, 10, "100/10s", TELLS,
    ),
    Row(
        "flask-moving", "Flask-Limiter, 100/10s, moving-window",
        python("flask_limiter", limits=["100 per 10 second"], strategy="moving-window"), 10, 10, "100/10s", TELLS,
    ),
    Row("slowapi", "slowapi, 100/10s", python("slowapi", limit="100/10 second"), 10, 10, "100/10s", TELLS),
    Row("slowapi-second", "slowapi, 20/s", python("slowapi", limit="20/second"), 20, 1, "20/s", TELLS, QUICK_TELLS),
    Row("fastapi", "fastapi-limiter, 100/10s", python("fastapi_limiter", count=100, seconds=10), 10, 10, "100/10s", REFUSES),
    Row(
        "django", "django-ratelimit, 20/s", python("django_ratelimit", rate="20/s"), 20, 1, "20/s",
        Bounds(0, late=100, seen=10**9, careful_accepted=0, careful_refused=10**9),
        because="it refuses with a bare 403, which says nothing of a limit",
    ),
    Row("drf", "Django REST framework, 20/s", python("rest_framework", rate="20/s"), 20, 1, "20/s", REFUSES),
    Row(
        "drf-minute", "Django REST framework, 300/min", python("rest_framework", rate="300/min"), 5, 60, "300/min",
        Bounds(0.85), least=MINUTE,
    ),
    Row("litestar", "Litestar, 20/s", python("litestar", unit="second", count=20), 20, 1, "20/s", TELLS),
    Row("quart", "Quart-Rate-Limiter, 100/10s", python("quart_rate_limiter", count=100, seconds=10), 10, 10, "100/10s", TELLS),
    Row("pyrate", "pyrate-limiter, 100/10s", python("pyrate_limiter", count=100, seconds=10), 10, 10, "100/10s", REFUSES),
    Row(
        "limits-fixed", "limits, 100/10s, fixed window of the clock",
        python("limits", limit="100/10 second", strategy="FixedWindowRateLimiter"), 10, 10, "100/10s", REFUSES,
    ),
    Row(
        "limits-moving", "limits, 100/10s, moving window",
        python("limits", limit="100/10 second", strategy="MovingWindowRateLimiter"), 10, 10, "100/10s", REFUSES,
    ),
    Row("bucket", "token_bucket, 10/s, 20 at once", python("token_bucket", rate=10, capacity=20), 10, 2, "10/s", REFUSES),
    Row("bucket-deep", "token_bucket, 20/s, 100 at once", python("token_bucket", rate=20, capacity=100), 20, 5, "20/s", REFUSES),
]

# === servers ===


def nginx(limit, zone="limit_req_zone $binary_remote_addr zone=z:1m rate=20r/s;", **options):
    return "nginx", {"zone": zone, "limit": limit, **options}


TEN = "limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;"
RETRY_AFTER = "add_header Retry-After $again always;"
AGAIN = 'map $status $again { 503 1; default ""; }'
CONNECTIONS = "limit_conn_zone $binary_remote_addr zone=z:1m;"
# How long a gate works, and so what five at once come to.
WORK = 0.1
FIVE = 5 / WORK
# A slot no longer than what the way varies by: who keeps to the rate is refused, and who is not, does not keep to it.
NO_BURST = Bounds(0, late=100, configured_share=0, configured_refused=10**9, careful_accepted=1, careful_refused=0.25)


def gate(status, **options):
    return python("parallel", count=5, work=WORK, status=status, **options)


SERVERS = [
    Row(
        "nginx", "nginx limit_req 20r/s, 429", nginx("limit_req zone=z; limit_req_status 429;"), 20, 1, "20/s",
        REFUSES, QUICK_REFUSES,
    ),
    Row(
        "nginx-far", "the same, 25 ± 3 ms away", nginx("limit_req zone=z; limit_req_status 429;"), 20, 1, "20/s",
        NO_BURST, way=(0.022, 0.003), because="no burst, and a way that varies: judged against the careful client alone",
    ),
    Row("nginx-503", "nginx limit_req 10r/s, 503", nginx("limit_req zone=z;", TEN), 10, 1, "10/s", REFUSES, QUICK_REFUSES),
    Row(
        "nginx-503-after", "the same and Retry-After: 1", nginx(f"limit_req zone=z; {RETRY_AFTER}", f"{TEN} {AGAIN}"),
        10, 1, "10/s", REFUSES,
    ),
    Row(
        "nginx-nodelay", "nginx limit_req 20r/s burst=20 nodelay, 429",
        nginx("limit_req zone=z burst=20 nodelay; limit_req_status 429;"), 20, 1, "20/s", REFUSES,
    ),
    Row(
        "nginx-delay", "nginx limit_req 20r/s burst=20, 503", nginx("limit_req zone=z burst=20;"), 20, 1, "20/s", REFUSES
    ),
    Row(
        "nginx-half", "nginx limit_req 20r/s burst=20 delay=8, 429",
        nginx("limit_req zone=z burst=20 delay=8; limit_req_status 429;"), 20, 1, "20/s", REFUSES,
    ),
    Row(
        "nginx-conn", "nginx limit_conn 5, 503", nginx("limit_conn z 5;", CONNECTIONS, work=WORK), FIVE, 1, "in-flight 5",
        REFUSES, QUICK_REFUSES,
    ),
    Row(
        "haproxy", "HAProxy http_req_rate(10s) over 100, 429", ("haproxy", {"window": "10s", "count": 100}), 10, 10,
        "100/10s", REFUSES,
    ),
    Row(
        "haproxy-second", "HAProxy http_req_rate(1s) over 20, 429", ("haproxy", {"window": "1s", "count": 20}), 20, 1,
        "20/s", REFUSES,
    ),
    Row(
        "envoy", "Envoy local rate limit, 100/10s",
        ("envoy", {"limit": {"tokens": 100, "interval": "10s", "headers": "OFF"}}), 10, 10, "100/10s", REFUSES,
    ),
    Row(
        "envoy-headers", "the same, X-RateLimit headers",
        ("envoy", {"limit": {"tokens": 100, "interval": "10s", "headers": "DRAFT_VERSION_03"}}), 10, 10, "100/10s", TELLS,
    ),
    Row(
        "envoy-breaker", "Envoy circuit breaker, 5 requests, 503", ("envoy", {"requests": 5, "work": WORK}),
        FIVE, 1, "in-flight 5", REFUSES,
    ),
    Row("gate-429", "5 at once, 429", gate(429), FIVE, 1, "in-flight 5", REFUSES, QUICK_REFUSES),
    Row("gate-503", "5 at once, 503", gate(503), FIVE, 1, "in-flight 5", REFUSES),
    Row("gate-503-after", "5 at once, 503 and Retry-After: 1", gate(503, retry_after="1"), FIVE, 1, "in-flight 5", REFUSES),
    Row(
        "gate-says", "5 at once, 503, Retry-After: 1, “too many concurrent requests”",
        gate(503, retry_after="1", body="too many concurrent requests"), FIVE, 1, "in-flight 5", REFUSES,
    ),
]

# === headers that lie ===


def lying(key, name, **more):
    # A tenth of the share of the same limiter without headers is what a lie may cost.
    server = python("lying", limit="100/10 second", lie=key)
    return Row(f"lie-{key}", f"limits, 100/10s, {name}", server, 10, 10, "100/10s", Bounds(0.81), **more)


LIES = [
    lying("frozen", "remaining always 0"),
    lying("full", "remaining always 100"),
    lying("window", "reset 50 s late"),
    lying("negative", "remaining and reset negative"),
    lying("alternating", "remaining 0 in every second answer"),
    lying("stranger", "somebody else's remaining"),
]

ROWS = [*NODE, *PYTHON, *SERVERS, *LIES]
