# SPDX-License-Identifier: Apache-2.0
"""What verbs share that look at recordings: opening one, and the options that say which part of it."""
