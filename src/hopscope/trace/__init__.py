# SPDX-License-Identifier: Apache-2.0
"""Relations over a recording: which part of it is selected, what belongs together, what is missing."""
