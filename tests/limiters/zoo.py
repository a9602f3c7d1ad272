"""The rows: each a limiter, its settings, its limit, and the required results."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Bounds:
    """Required results of a row. `share` is that of the last part of a measurement, `late` the refusals after 10 s in %;
    `configured` is for andante with the right limit, `careful` compares andante without one with the careful client."""

    share: float
    late: float = 2.0
    seen: int = 0
    # Seconds; None means the limiter's own window.
    stall: float | None = None
    configured_share: float = 0.95
    configured_refused: int = 1
    careful_accepted: float = 0.97
    careful_refused: float = 0.05


@dataclass(frozen=True)
class Allows:
    """What a limiter serves in a second at most, the window in which it counts (in seconds), and that as a --limit. None if
    no --limit says it."""

    rate: float
    window: float
    limit: str | None


@dataclass(frozen=True)
class Row:
    """`key` names it on the command line. `server` is a method of `world.World`, with its options."""

    key: str
    name: str
    server: tuple
    allows: Allows
    bounds: Bounds
    # Bounds of the quick part; None means that the row is not in it.
    quick: Bounds | None = None
    # Requests of the workers, in turn.
    requests: tuple = ({"method": "get", "path": "/items"},)
    # Seconds that each direction takes: always, and besides on average.
    way: tuple = (0, 0)
    # Why its bounds are its own.
    because: str = ""

    def seconds(self, wanted):
        """Seconds of a measurement: three windows where they are long, because otherwise the first one's burst counts."""
        return max(wanted, 3 * self.allows.window) if self.allows.window > 30 else wanted

    def tail(self, seconds):
        """Seconds of the last part: 30, or a window, but no more than half of all."""
        return min(max(30, self.allows.window), seconds / 2)


# For APIs that tell their limit, and for those that only refuse.
TELLS, REFUSES = Bounds(0.95), Bounds(0.90)
# Twenty seconds are few: these bounds find standstills.
QUICK_TELLS = QUICK_REFUSES = Bounds(0.70, late=6.0, stall=4.0, configured_share=0.70, configured_refused=5)

PER_TEN = Allows(10, 10, "100/10s")
PER_SECOND = Allows(20, 1, "20/s")
PER_MINUTE = Allows(5, 60, "300/min")
PER_BOTH = Allows(5, 60, "20/s,300/min")

# === npm ===


def node(kind, *arguments, **options):
    return "node", {"kind": kind, "options": list(arguments) or options}


def express(*limiters):
    return node("express", limiters=limiters)


def per(seconds, limit, **options):
    return {"windowMs": seconds * 1000, "limit": limit, **options}


def draft(number):
    return {"legacyHeaders": False, "standardHeaders": f"draft-{number}"}


SILENT = {"legacyHeaders": False, "standardHeaders": False}
GET = {"method": "get", "path": "/items"}
POST = {"method": "post", "path": "/search"}
ROUTES = (GET, GET, GET, POST)
KEYS = tuple({**GET, "headers": {"X-Api-Key": key}} for key in ["free", "paid"])
TWO = [per(1, 20, identifier="second", **draft(8)), per(60, 300, identifier="minute", **draft(8))]
NEST = [{"name": "short", "ttl": 1000, "limit": 20}, {"name": "long", "ttl": 60000, "limit": 300}]

NODE = [
    Row("express", "express-rate-limit", express(per(10, 100)), PER_TEN, TELLS),
    Row("express-6", "express-rate-limit, draft-6", express(per(10, 100, **draft(6))), PER_TEN, TELLS),
    Row("express-7", "express-rate-limit, draft-7", express(per(10, 100, **draft(7))), PER_TEN, TELLS),
    Row("express-8", "express-rate-limit, draft-8", express(per(10, 100, **draft(8))), PER_TEN, TELLS),
    Row("express-silent", "express-rate-limit, no headers", express(per(10, 100, **SILENT)), PER_TEN, REFUSES),
    Row("express-second", "express-rate-limit", express(per(1, 20)), PER_SECOND, TELLS, QUICK_TELLS),
    Row("express-minute", "express-rate-limit, no headers", express(per(60, 300, **SILENT)), PER_MINUTE, REFUSES),
    Row(
        "express-two-short",
        "two express-rate-limits",
        express(per(1, 20), per(10, 100)),
        Allows(10, 10, "20/s,100/10s"),
        TELLS,
        QUICK_TELLS,
    ),
    Row("express-two", "two express-rate-limits", express(per(1, 20), per(60, 300)), PER_BOTH, TELLS),
    Row("express-two-draft", "two express-rate-limits, draft-8", express(*TWO), PER_BOTH, TELLS),
    Row(
        "express-route",
        "express-rate-limit, GET 100/10s, POST 10/10s",
        express(per(10, 100, **GET), per(10, 10, **POST)),
        Allows(11, 10, None),
        TELLS,
        requests=ROUTES,
    ),
    Row(
        "express-route-all",
        "express-rate-limit, all 100/10s, POST 10/10s of these",
        express(per(10, 100), per(10, 10, **POST)),
        Allows(10, 10, None),
        TELLS,
        requests=ROUTES,
    ),
    Row(
        "express-keys",
        "express-rate-limit, one key 20/10s, one 100/10s",
        express({"windowMs": 10000, "keys": {"free": 20, "paid": 100}}),
        Allows(12, 10, None),
        TELLS,
        requests=KEYS,
    ),
    Row("fastify", "@fastify/rate-limit", node("fastify", max=100, timeWindow=10000), PER_TEN, TELLS),
    Row(
        "fastify-draft",
        "@fastify/rate-limit, draft headers",
        node("fastify", max=100, timeWindow=10000, enableDraftSpec=True),
        PER_TEN,
        TELLS,
    ),
    Row("koa", "koa-ratelimit", node("koa", max=100, duration=10000), PER_TEN, TELLS),
    Row("flexible", "rate-limiter-flexible", node("flexible", points=100, duration=10), PER_TEN, TELLS),
    Row(
        "bottleneck",
        "bottleneck, 100/10s and 5 at once, 503",
        node("bottleneck", work=50, maxConcurrent=5, reservoir=100, reservoirRefreshAmount=100, reservoirRefreshInterval=10000),
        Allows(10, 10, "100/10s,in-flight 5"),
        REFUSES,
    ),
    Row("hono", "hono-rate-limiter", node("hono", windowMs=10000, limit=100), PER_TEN, TELLS),
    Row(
        "hapi",
        "hapi-rate-limit",
        node("hapi", userLimit=100, userCache={"expiresIn": 10000}, pathLimit=False),
        PER_TEN,
        TELLS,
    ),
    Row("nest", "@nestjs/throttler", node("nest", {"ttl": 10000, "limit": 100}), PER_TEN, TELLS),
    Row("nest-two", "@nestjs/throttler, two limits", node("nest", *NEST), PER_BOTH, TELLS),
]

# === PyPI ===


def python(kind, **options):
    return "python", {"kind": kind, "options": options}


def flask(*limits, **options):
    return python("flask_limiter", limits=limits or ["100 per 10 second"], **options)


FORBIDDEN = Bounds(0, late=100, seen=10**9, stall=10**9, careful_accepted=0, careful_refused=10**9)

def gcra(burst, bounds, quick=None):
    """The reported limit is the burst, and not the number allowed in a window."""
    server = python("throttled", rate=10, burst=burst)
    return Row(f"gcra-{burst}", f"throttled-py, GCRA, burst {burst}", server, Allows(10, 1, "10/s"), bounds, quick)


PYTHON = [
    Row("flask", "Flask-Limiter", flask(), PER_TEN, TELLS),
    Row("flask-silent", "Flask-Limiter, no headers", flask(headers=False), PER_TEN, REFUSES),
    Row("flask-two", "Flask-Limiter, two limits", flask("20 per second", "300 per minute"), PER_BOTH, TELLS),
    Row("flask-counter", "Flask-Limiter, counter", flask(strategy="sliding-window-counter"), PER_TEN, TELLS),
    Row("flask-moving", "Flask-Limiter, moving window", flask(strategy="moving-window"), PER_TEN, TELLS),
    Row("slowapi", "slowapi", python("slowapi", limit="100/10 second"), PER_TEN, TELLS),
    Row("slowapi-second", "slowapi", python("slowapi", limit="20/second"), PER_SECOND, TELLS, QUICK_TELLS),
    Row("fastapi", "fastapi-limiter", python("fastapi_limiter", count=100, seconds=10), PER_TEN, REFUSES),
    Row(
        "django",
        "django-ratelimit",
        python("django_ratelimit", rate="20/s"),
        PER_SECOND,
        FORBIDDEN,
        because="It refuses with a 403 that does not mention a limit: only the right `--limit` helps.",
    ),
    Row("drf", "Django REST framework", python("rest_framework", rate="20/s"), PER_SECOND, REFUSES),
    Row("drf-minute", "Django REST framework", python("rest_framework", rate="300/min"), PER_MINUTE, REFUSES),
    Row("litestar", "Litestar", python("litestar", unit="second", count=20), PER_SECOND, TELLS),
    Row(
        "quart",
        "Quart-Rate-Limiter",
        python("quart_rate_limiter", count=100, seconds=10),
        PER_TEN,
        replace(TELLS, careful_accepted=0.85),
        because="It announces 100 in 10 s, but is a token bucket: it serves 100 at once and 10 a second besides, 700 in the"
        " first minute. andante never sends more than the announced 100 in any 10 s: 600 of these 700, and all later"
        " ones.",
    ),
    Row("pyrate", "pyrate-limiter", python("pyrate_limiter", count=100, seconds=10), PER_TEN, REFUSES),
    Row(
        "limits-fixed",
        "limits, fixed window",
        python("limits", limit="100/10 second", strategy="FixedWindowRateLimiter"),
        PER_TEN,
        REFUSES,
    ),
    Row(
        "limits-moving",
        "limits, moving window",
        python("limits", limit="100/10 second", strategy="MovingWindowRateLimiter"),
        PER_TEN,
        REFUSES,
    ),
    gcra(1, REFUSES),
    gcra(5, REFUSES, QUICK_REFUSES),
    gcra(20, REFUSES),
    Row(
        "bucket", "token_bucket, 20 deep", python("token_bucket", rate=10, capacity=20), Allows(10, 2, "10/s burst 20"), REFUSES
    ),
    Row(
        "bucket-deep",
        "token_bucket, 100 deep",
        python("token_bucket", rate=20, capacity=100),
        Allows(20, 5, "20/s burst 100"),
        REFUSES,
    ),
]

# === servers ===

# Seconds that a request takes at limiters of concurrency.
WORK, SLOW = 0.1, 1.5


def nginx(limit, rate=20, more="", work=None):
    zones = (
        f"limit_req_zone $binary_remote_addr zone=z:1m rate={rate}r/s; limit_conn_zone $binary_remote_addr zone=c:1m;"
    )
    return "nginx", {"zones": f"{zones} {more}", "limit": limit, "work": work}


def haproxy(count, seconds):
    return "haproxy", {"count": count, "window": f"{seconds}s"}


def envoy(headers):
    return "envoy", {"limit": {"tokens": 100, "interval": "10s", "headers": headers}}


def gate(status, work=WORK, **options):
    return python("parallel", count=5, work=work, status=status, **options)


FIVE = Allows(5 / WORK, 1, "in-flight 5")
FIVE_SLOW = Allows(5 / SLOW, 2, "in-flight 5")
SLOW_START = "The first pause ends when a request that was sent after it is answered: 12 of 195 are lost in the first 4 s."
NO_BURST = "limit_req zone=z; limit_req_status 429;"
NO_DELAY = "limit_req zone=z burst=20 nodelay; limit_req_status 429;"
HALF_DELAY = "limit_req zone=z burst=20 delay=8; limit_req_status 429;"
AFTER = nginx(
    "limit_req zone=z; add_header Retry-After $again always;", rate=10, more='map $status $again { 503 1; default ""; }'
)
SLOWER = Allows(10, 1, "10/s")
# Only the careful client shows the possible result.
UNEVEN = Bounds(
    0,
    late=100,
    configured_share=0,
    configured_refused=10**9,
    careful_accepted=1,
    careful_refused=0.25,
)

SERVERS = [
    Row("nginx", "nginx limit_req, 429", nginx(NO_BURST), PER_SECOND, REFUSES, QUICK_REFUSES),
    Row(
        "nginx-far",
        "nginx limit_req, 429, 25 ms away and uneven",
        nginx(NO_BURST),
        PER_SECOND,
        UNEVEN,
        way=(0.022, 0.003),
        because="No burst, and a network delay that varies by 3 ms in each direction: judged against the careful client alone.",
    ),
    Row("nginx-503", "nginx limit_req, 503", nginx("limit_req zone=z;", rate=10), SLOWER, REFUSES, QUICK_REFUSES),
    Row("nginx-503-after", "nginx limit_req, 503 and Retry-After: 1", AFTER, SLOWER, REFUSES),
    Row("nginx-nodelay", "nginx limit_req burst=20 nodelay, 429", nginx(NO_DELAY), PER_SECOND, REFUSES),
    Row("nginx-delay", "nginx limit_req burst=20, 503", nginx("limit_req zone=z burst=20;"), PER_SECOND, REFUSES),
    Row("nginx-half", "nginx limit_req burst=20 delay=8, 429", nginx(HALF_DELAY), PER_SECOND, REFUSES),
    Row("nginx-conn", "nginx limit_conn, 503", nginx("limit_conn c 5;", work=WORK), FIVE, REFUSES, QUICK_REFUSES),
    Row(
        "nginx-conn-slow",
        "nginx limit_conn, 429, answers after 1.5 s",
        nginx("limit_conn c 5; limit_conn_status 429;", work=SLOW),
        FIVE_SLOW,
        Bounds(0.90, careful_accepted=0.90),
        because=SLOW_START,
    ),
    Row(
        "vsthrottle",
        "Varnish vsthrottle, 429",
        ("varnish", {"count": 10, "seconds": 1}),
        SLOWER,
        Bounds(0.45, stall=6),
        because="Varnish's own 429 always asks for a wait of 5 s, and andante obeys: judged against the careful client.",
    ),
    Row("go", "Go x/time/rate, 3 deep", ("go", {"rate": 10, "burst": 3}), SLOWER, REFUSES),
    Row("haproxy", "HAProxy http_req_rate, 429", haproxy(100, 10), PER_TEN, REFUSES),
    Row("haproxy-second", "HAProxy http_req_rate, 429", haproxy(20, 1), PER_SECOND, REFUSES),
    Row("envoy", "Envoy local rate limit", envoy("OFF"), PER_TEN, REFUSES),
    Row("envoy-headers", "Envoy local rate limit, headers", envoy("DRAFT_VERSION_03"), PER_TEN, TELLS),
    Row("envoy-breaker", "Envoy circuit breaker, 503", ("envoy", {"requests": 5, "work": WORK}), FIVE, REFUSES),
    Row("gate-429", "a semaphore, 429", gate(429), FIVE, REFUSES, QUICK_REFUSES),
    Row(
        "gate-429-slow",
        "a semaphore, 429, answers after 1.5 s",
        gate(429, work=SLOW),
        FIVE_SLOW,
        Bounds(0.90, careful_accepted=0.90),
        because=SLOW_START,
    ),
    Row("gate-503", "a semaphore, 503", gate(503), FIVE, REFUSES),
    Row("gate-503-after", "a semaphore, 503 and Retry-After: 1", gate(503, retry_after="1"), FIVE, REFUSES),
    Row(
        "gate-says",
        "the same, “too many concurrent requests”",
        gate(503, retry_after="1", body="too many concurrent requests"),
        FIVE,
        REFUSES,
    ),
]

# === headers that lie ===


def lying(key, name, because="", **bounds):
    server = python("lying", limit="100/10 second", lie=key)
    # Permitted cost of a lie: a tenth of the share that the same limiter without headers must reach.
    return Row(f"lie-{key}", f"limits, {name}", server, PER_TEN, Bounds(0.81, **bounds), because=because)


LIES = [
    lying("frozen", "remaining always 0"),
    lying("full", "remaining always 100"),
    lying(
        "window",
        "reset 50 s late",
        "Its first answers announce 100 a minute. andante believes them until two windows ended early, which takes 20 s:"
        " it forgoes 100 of the 600 of a minute, and nothing later.",
        careful_accepted=0.80,
    ),
    lying("negative", "remaining and reset negative"),
    lying("alternating", "every second remaining 0"),
    lying("stranger", "somebody else's remaining"),
]

ROWS = [*NODE, *PYTHON, *SERVERS, *LIES]
