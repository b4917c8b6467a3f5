# SPDX-License-Identifier: Apache-2.0
"""Records of every packet out of the rings: for recordings, and for drops that are counted live."""
