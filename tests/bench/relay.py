"""A way to an sshd that takes longer: each byte half of the added round trip, each way.

The kernel's netem would do it below TCP, but not every machine's kernel has it. What differs: TCP's
own acknowledgements are not delayed; its handshake is, by one round trip before the first byte.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

BLOCK = 65536


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay_s: float) -> None:
    """Hand blocks on, each ``delay_s`` after it came; later ones don't wait for earlier ones."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, block = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not block:
                break
            target.write(block)
            await target.drain()
        target.close()

    delivering = asyncio.create_task(deliver())
    try:
        while True:
            block = await source.read(BLOCK)
            queue.put_nowait((loop.time() + delay_s, block))
            if not block:
                break
        await delivering
    except ConnectionError:
        target.close()
    finally:
        delivering.cancel()


@dataclass
class _Relay:
    host: str
    port: int
    added_s: float
    own_port: int = 0
    up: threading.Event = field(default_factory=threading.Event)
    loop: asyncio.AbstractEventLoop | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self.take, "127.0.0.1", 0)
        self.own_port = server.sockets[0].getsockname()[1]
        self.up.set()
        async with server:
            await self.stop.wait()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.added_s)  # TCP's handshake
        far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        half = self.added_s / 2
        # who is still connected when the relay ends is cut off
        with suppress(asyncio.CancelledError):
            await asyncio.gather(_copy(reader, far_writer, half), _copy(far_reader, writer, half))


@contextmanager
def slower(host: str, port: int, added_s: float) -> Iterator[int]:
    """A port of 127.0.0.1 that leads to ``host``, with ``added_s`` more for each round trip."""
    relay = _Relay(host, port, added_s)
    thread = threading.Thread(target=lambda: asyncio.run(relay.serve()), daemon=True)
    thread.start()
    if not relay.up.wait(10) or relay.loop is None:
        raise RuntimeError("the relay did not come up within 10 s")
    try:
        yield relay.own_port
    finally:
        relay.loop.call_soon_threadsafe(relay.stop.set)
        thread.join(10)
