# SPDX-License-Identifier: Apache-2.0
"""Messages of a recording: byte ranges of flows, from the send call to the read that delivers them."""
