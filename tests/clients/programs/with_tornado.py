"""Tornado's simple client, which cannot use a proxy."""

import asyncio

from steps import STEPS, done
from tornado.httpclient import AsyncHTTPClient


async def main():
    client = AsyncHTTPClient()
    for step in STEPS:
        answer = await client.fetch(step.url, method=step.method, body=step.body)
        step.check(answer.code, answer.body)
    done([])


asyncio.run(main())
