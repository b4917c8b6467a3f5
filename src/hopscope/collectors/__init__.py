# SPDX-License-Identifier: Apache-2.0
"""Collectors: the BPF programs of one question, and the Python that runs them."""
