# SPDX-License-Identifier: Apache-2.0
"""Where received and sent packets spend their time in the Linux network stack, hop by hop."""

__version__ = "0.1.0"
