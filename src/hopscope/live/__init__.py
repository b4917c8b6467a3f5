# SPDX-License-Identifier: Apache-2.0
"""What verbs that measure live share: attaching, series of histograms, the interval loop, options."""
