# SPDX-License-Identifier: Apache-2.0
"""The sockets of a host: as sock_diag reports them, as a table, filtered as ss does."""
