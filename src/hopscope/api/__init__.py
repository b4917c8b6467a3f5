# SPDX-License-Identifier: Apache-2.0
"""The interface for programs; import its names from :mod:`hopscope`."""
