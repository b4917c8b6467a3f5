# SPDX-License-Identifier: Apache-2.0
"""Application protocols, told by the first bytes of a request and of its answer."""
