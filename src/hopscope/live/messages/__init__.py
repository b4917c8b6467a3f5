# SPDX-License-Identifier: Apache-2.0
"""What ``rx`` and ``tx`` share for single messages: records out of the rings, the slowest of them, and output."""
