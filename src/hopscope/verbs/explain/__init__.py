# SPDX-License-Identifier: Apache-2.0
"""The verb ``explain``: why messages are slow."""
