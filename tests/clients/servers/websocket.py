"""An echo by WebSocket, with TLS and without. Usage: websocket.py PLAIN-PORT TLS-PORT CERTIFICATE KEY LOG"""

import asyncio
import ssl
import sys

from websockets.asyncio.server import serve


async def main(plain, tls, certificate, key, log):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def echo(connection):
        with open(log, "a") as seen:
            seen.write(f"HTTP/1.1 {connection.remote_address[1]} GET {connection.request.path}\n")
        async for message in connection:
            await connection.send(message)

    async with serve(echo, "127.0.0.1", int(plain)), serve(echo, "127.0.0.1", int(tls), ssl=context):
        await asyncio.get_running_loop().create_future()


asyncio.run(main(*sys.argv[1:]))
