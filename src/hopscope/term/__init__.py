# SPDX-License-Identifier: Apache-2.0
"""How results look in a terminal, as JSON, as SVG; nothing is computed here."""
