"""Usage: with_httpx.py BASE h1 | h2 | h2c. The last is HTTP/2 without TLS, by prior knowledge."""

import sys

import httpx
from steps import STEPS, done

options = {"h1": {}, "h2": {"http2": True}, "h2c": {"http1": False, "http2": True}}[sys.argv[2]]
with httpx.Client(**options) as client:
    protocols = []
    for step in STEPS:
        answer = client.request(step.method, step.url, content=step.body)
        step.check(answer.status_code, answer.content)
        protocols.append(answer.http_version)
done(protocols)
