# SPDX-License-Identifier: Apache-2.0
"""Events as they come, in order of time and with the names of what they belong to."""
