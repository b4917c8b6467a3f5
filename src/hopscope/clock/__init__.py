# SPDX-License-Identifier: Apache-2.0
"""Clock domains: how the clocks that time stamps are taken on relate to each other, always with a bound."""
