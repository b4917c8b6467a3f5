# SPDX-License-Identifier: Apache-2.0
"""Events as Ethernet frames, for tcpdump, tc, nftables and whatever else takes packets."""
