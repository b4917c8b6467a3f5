# SPDX-License-Identifier: Apache-2.0
"""What held messages: every nanosecond between the send call and the read has one cause."""
