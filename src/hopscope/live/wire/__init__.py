# SPDX-License-Identifier: Apache-2.0
"""Events as Ethernet frames: what is where in them, and how they are made."""
