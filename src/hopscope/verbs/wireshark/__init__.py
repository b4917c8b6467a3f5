# SPDX-License-Identifier: Apache-2.0
"""``hopscope wireshark``: packets with their hops in Wireshark, whose fields are made of the file's own catalogue."""
