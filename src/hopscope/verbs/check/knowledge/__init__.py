# SPDX-License-Identifier: Apache-2.0
"""What `hopscope check` knows, a module for each subject."""
