# SPDX-License-Identifier: Apache-2.0
"""Traces on disk: what their tables mean, how they are written, how they are opened. No kernel, no root."""
