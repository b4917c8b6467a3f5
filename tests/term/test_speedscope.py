# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema

from hopscope.model.stacks import Stack, merge
from hopscope.term.speedscope import render_speedscope

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]
NUMBERS = {"type": "array", "items": {"type": "number"}}
# What https://www.speedscope.app/file-format-schema.json says.
SCHEMA = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": {"type": "number"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {
                "frames": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string"},
                            "file": {"type": "string"},
                            "line": {"type": "number"},
                            "col": {"type": "number"},
                        },
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "items": {
                "if": {"properties": {"type": {"const": "evented"}}},
                "then": {"$ref": "#/$defs/evented"},
                "else": {"$ref": "#/$defs/sampled"},
            },
        },
    },
    "$defs": {
        "sampled": {
            "type": "object",
            "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
            "additionalProperties": False,
            "properties": {
                "type": {"const": "sampled"},
                "name": {"type": "string"},
                "unit": {"enum": UNITS},
                "startValue": {"type": "number"},
                "endValue": {"type": "number"},
                "samples": {"type": "array", "items": NUMBERS},
                "weights": NUMBERS,
            },
        },
        "evented": {
            "type": "object",
            "required": ["type", "name", "unit", "startValue", "endValue", "events"],
            "additionalProperties": False,
            "properties": {
                "type": {"const": "evented"},
                "name": {"type": "string"},
                "unit": {"enum": UNITS},
                "startValue": {"type": "number"},
                "endValue": {"type": "number"},
                "events": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["type", "at", "frame"],
                        "additionalProperties": False,
                        "properties": {
                            "type": {"enum": ["O", "C"]},
                            "at": {"type": "number"},
                            "frame": {"type": "number"},
                        },
                    },
                },
            },
        },
    },
}


def parsed(stacks: list[Stack]) -> dict[str, Any]:
    document = json.loads(render_speedscope("hopscope cpu", stacks))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return dict(document)


def test_file_looks_as_agreed(stacks: list[Stack], golden: Callable[[str, str], None]) -> None:
    golden("speedscope", json.dumps(parsed(stacks), indent=1, ensure_ascii=False))


def test_file_has_every_stack_with_its_samples(stacks: list[Stack]) -> None:
    document = parsed(stacks)
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert len(set(names)) == len(names)
    found = [
        Stack(part, tuple(names[each] for each in frames), weight, group)
        for profile in document["profiles"]
        for part, _, group in [profile["name"].partition(" ")]
        for frames, weight in zip(profile["samples"], profile["weights"], strict=True)
    ]
    assert found == merge(stacks)


def test_a_profile_ends_where_its_weights_do(stacks: list[Stack]) -> None:
    for profile in parsed(stacks)["profiles"]:
        assert (profile["startValue"], profile["endValue"]) == (0, sum(profile["weights"]))


def test_no_samples_are_no_profiles() -> None:
    assert parsed([])["profiles"] == []
    (profile,) = parsed([Stack("send", ("a",), 0), Stack("irq", ("b",), 1)])["profiles"]
    assert (profile["name"], profile["weights"]) == ("irq", [1])
