# SPDX-License-Identifier: Apache-2.0
"""How results look: terminal text and JSON. Every renderer is a pure function of its arguments."""
