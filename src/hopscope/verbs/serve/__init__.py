# SPDX-License-Identifier: Apache-2.0
"""``hopscope serve``: measurements for other programs."""
