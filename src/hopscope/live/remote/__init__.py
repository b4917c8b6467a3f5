# SPDX-License-Identifier: Apache-2.0
"""Live collectors on other hosts: served there by an agent, and asked from here."""
