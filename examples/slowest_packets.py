# SPDX-License-Identifier: Apache-2.0
"""Print the packets that waited longest between two points of the stack, every five seconds, by a subscription.

Needs no right but to connect to the socket of `sudo hopscope serve --socket /run/hopscope.sock`.
"""

import sys
import time

import hopscope


def main() -> None:
    """Print ten of them again and again, until Ctrl-C."""
    slow, next_s = [], time.monotonic() + 5
    with hopscope.subscribe(points=["packets"], where="hop > 100us", path=sys.argv[1]) as subscription:
        for event in subscription:
            slow.append((event["hop_ns"], event["point"], event["source"], event["destination"], event["comm"]))
            if time.monotonic() > next_s:
                print(f"lost {subscription.lost}, in the kernel {subscription.kernel_lost}")
                for hop_ns, *rest in sorted(slow, key=lambda each: -each[0])[:10]:
                    print(f"{hop_ns / 1e6:9.3f} ms before", *rest, flush=True)
                slow, next_s = [], time.monotonic() + 5


if __name__ == "__main__":
    main()
