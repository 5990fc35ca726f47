"""A TCP proxy on loopback that makes a network of it: latency before each request, connections that break off, answers that refuse.

`Proxy(port)` forwards to 127.0.0.1:port. `latency_s` delays every request; `fault` is None or one of

    ("drop", n)      every n-th answer ends in the middle; `dropped` says how many did
    ("answer", ...)  every request is answered with this status line and body instead of being forwarded

`requests` has the first line of every request that came, so that a test can say what was asked for, and how often.
"""
import asyncio, threading


class Proxy:
    def __init__(self, target, latency_s=0.0):
        self.target, self.latency_s, self.fault, self.requests, self.tasks, self.dropped = target, latency_s, None, [], set(), 0
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait()

    def _run(self, ready):
        async def serve():
            self.server = await asyncio.start_server(self._client, "127.0.0.1", 0)
            self.port = self.server.sockets[0].getsockname()[1]
            ready.set()
            await asyncio.Event().wait()

        asyncio.run(serve())

    async def _client(self, reader, writer):
        # asyncio itself keeps no task alive.
        self.tasks.add(asyncio.current_task())
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        state = {"drop": False}
        to = asyncio.create_task(self._forward(reader, there_writer, writer, state))
        await self._back(there_reader, writer, state)
        to.cancel()
        for end in (writer, there_writer):
            end.close()

    async def _forward(self, reader, there, back, state):
        try:
            while data := await reader.read(1 << 16):
                if data.split(b" ", 1)[0] in (b"GET", b"HEAD", b"PUT", b"POST", b"DELETE"):
                    self.requests.append(data.split(b"\r\n", 1)[0].decode("latin-1"))
                    # Its own number: others come while it waits.
                    number = len(self.requests)
                    await asyncio.sleep(self.latency_s)
                    if self.fault and self.fault[0] == "answer":
                        _, status, body = self.fault
                        head = f"HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
                        back.write(head.encode() + body.encode())
                        await back.drain()
                        back.close()
                        there.close()
                        return
                    if self.fault and self.fault[0] == "drop" and number % self.fault[1] == 0:
                        self.dropped += 1
                        state["drop"] = True
                there.write(data)
                await there.drain()
        except (OSError, asyncio.CancelledError):
            pass

    async def _back(self, there, writer, state):
        try:
            while data := await there.read(1 << 16):
                if state["drop"]:
                    writer.write(data[: max(1, len(data) // 2)])
                    await writer.drain()
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
