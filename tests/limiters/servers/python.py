"""A server behind a limiter of PyPI. Usage: python.py KIND OPTIONS ADDRESS PORT; OPTIONS is JSON: the arguments of the
function that is called like KIND."""

import asyncio
import json
import sys
import time

KINDS = {}
DONE = {"done": True}


def kind(serve):
    """Makes a function that returns an application a KIND, which `serve` serves."""

    def add(make):
        KINDS[make.__name__] = lambda options, address, port: serve(make(**options), address, port)
        return make

    return add


def wsgi(app, address, port):
    import waitress

    # More threads than workers: only the limiter may make requests wait.
    waitress.serve(app, host=address, port=port, threads=80, channel_timeout=600, _quiet=True)


def asgi(app, address, port):
    import uvicorn

    uvicorn.run(app, host=address, port=port, log_level="error", timeout_keep_alive=75)


def aiohttp(app, address, port):
    from aiohttp import web

    web.run_app(app, host=address, port=port, print=None, access_log=None)


# === frameworks, each with the limiter that its users take ===


@kind(wsgi)
def flask_limiter(limits, strategy="fixed-window", headers=True):
    from flask import Flask
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    app = Flask(__name__)
    options = {"strategy": strategy, "headers_enabled": headers, "storage_uri": "memory://"}
    Limiter(get_remote_address, app=app, default_limits=limits, **options)
    app.get("/items")(lambda: DONE)
    return app


@kind(asgi)
def slowapi(limit, headers=True):
    from fastapi import FastAPI, Request, Response
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    from slowapi.util import get_remote_address

    app = FastAPI()
    app.state.limiter = limiter = Limiter(get_remote_address, headers_enabled=headers)
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)

    @app.get("/items")
    @limiter.limit(limit)
    async def items(request: Request, response: Response):
        return DONE

    return app


@kind(asgi)
def fastapi_limiter(count, seconds):
    from fastapi import Depends, FastAPI
    from fastapi_limiter.depends import RateLimiter
    from pyrate_limiter import Duration, Limiter, Rate

    app = FastAPI()
    limiter = Limiter(Rate(count, Duration.SECOND * seconds))
    app.get("/items", dependencies=[Depends(RateLimiter(limiter))])(lambda: DONE)
    return app


def django(**settings):
    """Bare Django with `settings`, and the functions for a view."""
    import django as package
    from django.conf import settings as configuration

    cache = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    configuration.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], CACHES=cache, **settings)
    package.setup()
    from django.core.handlers.wsgi import WSGIHandler

    return WSGIHandler


def routes(view):
    from django.urls import path

    globals()["urlpatterns"] = [path("items", view)]


@kind(wsgi)
def django_ratelimit(rate):
    handler = django()
    from django.http import JsonResponse
    from django_ratelimit.decorators import ratelimit

    routes(ratelimit(key="ip", rate=rate)(lambda request: JsonResponse(DONE)))
    return handler()


@kind(wsgi)
def rest_framework(rate):
    throttling = {"DEFAULT_THROTTLE_RATES": {"anon": rate}, "UNAUTHENTICATED_USER": None}
    throttling["DEFAULT_THROTTLE_CLASSES"] = ["rest_framework.throttling.AnonRateThrottle"]
    throttling["DEFAULT_AUTHENTICATION_CLASSES"] = []
    handler = django(REST_FRAMEWORK=throttling)
    from rest_framework.decorators import api_view
    from rest_framework.response import Response

    routes(api_view(["GET"])(lambda request: Response(DONE)))
    return handler()


@kind(asgi)
def litestar(unit, count):
    from litestar import Litestar, get
    from litestar.middleware.rate_limit import RateLimitConfig

    @get("/items")
    async def items() -> dict:
        return DONE

    return Litestar([items], middleware=[RateLimitConfig(rate_limit=(unit, count)).middleware])


@kind(asgi)
def quart_rate_limiter(count, seconds):
    from datetime import timedelta

    from quart import Quart
    from quart_rate_limiter import RateLimit, RateLimiter

    app = Quart(__name__)
    RateLimiter(app, default_limits=[RateLimit(count, timedelta(seconds=seconds))])

    @app.get("/items")
    async def items():
        return DONE

    return app


# === libraries without a framework, in a server that answers 429 when they say no ===


def gate(may):
    """An application that answers 429 and nothing else where `may` is false."""
    from aiohttp import web

    async def items(_):
        return web.json_response(DONE) if may() else web.Response(status=429)

    app = web.Application()
    app.router.add_get("/items", items)
    return app


@kind(aiohttp)
def token_bucket(rate, capacity):
    import token_bucket as package

    limiter = package.Limiter(rate, capacity, package.MemoryStorage())
    return gate(lambda: limiter.consume("all"))


@kind(aiohttp)
def throttled(rate, burst):
    """GCRA, and the fields that its documentation has for its results: the limit that they tell of is the burst."""
    from math import ceil

    from aiohttp import web
    from throttled import RateLimiterType, Throttled, rate_limiter

    quota = rate_limiter.per_sec(rate, burst=burst)
    limiter = Throttled(key="all", using=RateLimiterType.GCRA.value, quota=quota)

    async def items(_):
        result = limiter.limit()
        state = result.state
        told = {"Limit": state.limit, "Remaining": state.remaining, "Reset": ceil(state.reset_after)}
        headers = {f"X-RateLimit-{name}": str(value) for name, value in told.items()}
        if result.limited:
            headers["Retry-After"] = str(ceil(state.retry_after))
        return web.json_response(DONE, status=429 if result.limited else 200, headers=headers)

    app = web.Application()
    app.router.add_get("/items", items)
    return app


@kind(aiohttp)
def pyrate_limiter(count, seconds):
    from pyrate_limiter import Duration, Limiter, Rate

    limiter = Limiter(Rate(count, Duration.SECOND * seconds))
    return gate(lambda: limiter.try_acquire("all", blocking=False))


@kind(aiohttp)
def limits(limit, strategy):
    import limits as package

    limiter = getattr(package.strategies, strategy)(package.storage.MemoryStorage())
    item = package.parse(limit)
    return gate(lambda: limiter.hit(item))


# === our own ===


@kind(aiohttp)
def parallel(count, work, status, retry_after=None, body=""):
    """A semaphore and nothing more: no more than `count` at once, each for `work` seconds."""
    from aiohttp import web

    inside = 0

    async def items(_):
        nonlocal inside
        if inside >= count:
            return web.Response(status=status, text=body, headers={"Retry-After": retry_after} if retry_after else {})
        inside += 1
        try:
            await asyncio.sleep(work)
        finally:
            inside -= 1
        return web.json_response(DONE)

    app = web.Application()
    app.router.add_get("/items", items)
    return app


@kind(aiohttp)
def lying(limit, lie):
    """A window of `limits` with correct counts and the false reports of LIES."""
    import limits as package
    from aiohttp import web

    limiter = package.strategies.FixedWindowRateLimiter(package.storage.MemoryStorage())
    item = package.parse(limit)
    answers = 0

    async def items(_):
        nonlocal answers
        answers += 1
        served = limiter.hit(item)
        window = limiter.get_window_stats(item)
        left = max(0, round(window.reset_time - time.time()))
        told = dict(zip(["Limit", "Remaining", "Reset"], LIES[lie](item.amount, window.remaining, left, answers)))
        headers = {f"X-RateLimit-{name}": str(value) for name, value in told.items()}
        return web.json_response(DONE, status=200 if served else 429, headers=headers)

    app = web.Application()
    app.router.add_get("/items", items)
    return app


# False values for limit, remaining, and seconds until the reset, from the true ones and the number of answers.
LIES = {
    "frozen": lambda limit, remaining, reset, answers: (limit, 0, reset),
    "full": lambda limit, remaining, reset, answers: (limit, limit, reset),
    "window": lambda limit, remaining, reset, answers: (limit, remaining, reset + 50),
    "negative": lambda limit, remaining, reset, answers: (limit, -remaining - 1, -reset),
    "alternating": lambda limit, remaining, reset, answers: (limit, remaining if answers % 2 else 0, reset),
    "stranger": lambda limit, remaining, reset, answers: (limit, answers * 37 % limit, reset),
}


@kind(aiohttp)
def backend(work=0.0):
    """No limiter: the backend of nginx and Envoy."""
    return parallel(1_000_000, work, 503)


if __name__ == "__main__":
    name, options, address, port = sys.argv[1:]
    KINDS[name](json.loads(options), address, int(port))
