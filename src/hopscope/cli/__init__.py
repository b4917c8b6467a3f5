# SPDX-License-Identifier: Apache-2.0
"""The command line: one verb a file, its docstring is its help."""
