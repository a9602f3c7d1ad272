import asyncio
import sys

from websockets.asyncio.client import connect


async def main(url):
    async with connect(url) as connection:
        for message in ["hello", b"\0" * 100_000, "goodbye"]:
            await connection.send(message)
            echo = await connection.recv()
            if echo != message:
                sys.exit(f"{url}: sent {message[:20]!r}, got {echo[:20]!r}")
    print("spoke HTTP/1.1")


asyncio.run(main(sys.argv[1]))
