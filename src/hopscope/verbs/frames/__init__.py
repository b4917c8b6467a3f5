# SPDX-License-Identifier: Apache-2.0
"""What `top` and `web` show: frames of this host, from the collectors of other verbs. It is no verb itself."""
