# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of itself and of this host: netlink, ethtool, sockets, counters, symbols, tracepoints."""
