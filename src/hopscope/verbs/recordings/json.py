# SPDX-License-Identifier: Apache-2.0
"""A recording as a JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.term.json_lines import VERSION, Json, iso

if TYPE_CHECKING:
    from hopscope.verbs.recordings.listing import Listed


def recording_to_json(listed: Listed, *, deleted: bool) -> Json:
    """Return what schema ``hopscope.recordings/1`` describes."""
    recording, duration_ns = listed.recording, listed.duration_ns
    return {
        "schema": f"hopscope.recordings/{VERSION}",
        "name": recording.name,
        "folder": str(recording.folder),
        "state": recording.state,
        "time": None if recording.started_ns is None else iso(recording.started_ns),
        "duration_s": None if duration_ns is None else duration_ns / 1e9,
        "size_bytes": listed.size_bytes,
        "events": listed.events,
        "lost": listed.lost,
        "hosts": list(recording.hosts),
        "options": recording.options or {},
        "problem": recording.problem or None,
        "deleted": deleted,
    }
