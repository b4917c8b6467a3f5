# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.lab.causes.actors ROLE OPTIONS``: one process of a scenario."""

from __future__ import annotations

import importlib
import json
import sys

from tests.lab.causes.actors.common import begin

_ROLES = {
    "reader": "reader.run",
    "sender": "sender.run",
    "locker": "locker.run",
    "hog": "disturb.hog",
    "stopper": "disturb.stopper",
    "wire": "wire.run",
    "server": "server.run",
    "asker": "asker.run",
}

role, options = sys.argv[1], json.loads(sys.argv[2])
begin(role, options)
module, function = _ROLES[role].split(".")
getattr(importlib.import_module(f"tests.lab.causes.actors.{module}"), function)(options)
