import asyncio

import aiohttp
from steps import STEPS, done


async def main():
    protocols = []
    # Without trust_env aiohttp reads no variables.
    async with aiohttp.ClientSession(trust_env=True) as session:
        for step in STEPS:
            async with session.request(step.method, step.url, data=step.body) as answer:
                step.check(answer.status, await answer.read())
                protocols.append("HTTP/{}.{}".format(*answer.version))
    done(protocols)


asyncio.run(main())
