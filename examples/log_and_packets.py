# SPDX-License-Identifier: Apache-2.0
"""Show what the stack dropped or sent again around each line of an application's log.

Usage: `tail -f app.log | log_and_packets.py /run/hopscope.sock`. Lines are taken to be written when they come.
"""

import asyncio
import sys
import time

import hopscope


async def main() -> None:
    """Print both in order of time, until the log ends."""
    loop = asyncio.get_running_loop()
    log = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(log), sys.stdin)
    with hopscope.subscribe(points=["drops"], path=sys.argv[1]) as subscription:

        async def packets() -> None:
            async for event in subscription:
                at_s = (event["time_ns"] + subscription.realtime_offset_ns) / 1e9
                print(
                    f"{at_s:.6f}  {event['point']} {event['reason']} {event['source']} > {event['destination']}",
                    flush=True,
                )

        task = asyncio.create_task(packets())
        while line := await log.readline():
            print(f"{time.time():.6f}  {line.decode(errors='replace').rstrip()}", flush=True)
        subscription.close()
        await task


if __name__ == "__main__":
    asyncio.run(main())
