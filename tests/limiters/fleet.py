"""The workers: 64 of them, each asking again as soon as it was answered."""

import asyncio
import email.utils
import random
import time
from collections import Counter

import aiohttp

WORKERS = 64
# Pause in seconds of a worker after a refusal that andante should have absorbed.
UNWELL = 0.5
# A careful client's first pause is a random part of this, in seconds; each further pause is a random part of twice as
# much. The client adds as much to a pause that an answer demands.
PAUSE, LONGEST = 0.5, 30


class Fleet:
    """Counts the results of its workers: statuses, and names of exceptions."""

    def __init__(self, url, requests, proxy=None):
        self.url, self.requests, self.proxy = url, requests, proxy
        self.got = Counter()

    async def work(self, seconds):
        connector = aiohttp.TCPConnector(limit=0)
        # andante may let a request wait until the end.
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self.session:
            workers = [asyncio.ensure_future(self.worker(n)) for n in range(WORKERS)]
            await asyncio.wait(workers, timeout=seconds)
            for worker in workers:
                worker.cancel()
            ended = await asyncio.gather(*workers, return_exceptions=True)
        broken = [error for error in ended if not isinstance(error, asyncio.CancelledError)]
        if broken:
            raise broken[0]

    async def worker(self, number):
        request = self.requests[number % len(self.requests)]
        refused = 0
        while True:
            status, after = await self.ask(request)
            self.got[status] += 1
            refused = 0 if status == 200 else refused + 1
            if refused:
                await asyncio.sleep(UNWELL if self.proxy else pause(refused, after))

    async def ask(self, request):
        """A status or the name of an exception, and Retry-After."""
        try:
            async with self.session.request(
                request["method"].upper(), self.url + request["path"], headers=request.get("headers"), proxy=self.proxy
            ) as answer:
                await answer.read()
                return answer.status, answer.headers.get("Retry-After")
        except aiohttp.ClientError as error:
            return type(error).__name__, None


def pause(refused, after):
    """What a careful client waits: as long as it is told, and a little more; or longer each time, at random. Some are told to
    wait 0 s: they know no more than those that are told nothing."""
    told = seconds(after)
    if told:
        return told + random.random() * PAUSE
    return random.random() * min(PAUSE * 2 ** min(refused - 1, 10), LONGEST)


def seconds(after):
    """Retry-After in seconds, or 0."""
    try:
        return max(0.0, float(after or 0))
    except ValueError:
        return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
