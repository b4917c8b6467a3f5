# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of what verbs print: what all have in common, and the files in ``docs/json/`` that they are kept in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Schema = dict[str, Any]


def object_schema(properties: Mapping[str, Schema], *, null: bool = False, meaning: str = "") -> Schema:
    """Return the schema of an object that has these members and no others; `null`: or null."""
    whole: Schema = {"type": ["object", "null"] if null else "object"}
    if meaning:
        whole["description"] = meaning
    return whole | {"additionalProperties": False, "required": list(properties), "properties": dict(properties)}


def line_schema(name: str, version: int, description: str, line: Schema) -> Schema:
    """Return the schema of a line whose member ``schema`` is ``hopscope.NAME/VERSION``.

    Parameters
    ----------
    line
        The schema of an object with the other members.
    """
    title = f"hopscope.{name}/{version}"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:hopscope:schema:{name}:{version}",
        "title": title,
        "description": description,
        **line,
        "required": ["schema", *line["required"]],
        "properties": {"schema": {"const": title}, **line["properties"]},
    }


def write_schemas(arguments: list[str], schemas: Iterable[Schema]) -> int:
    """Write each schema to the folder that the only argument names; return the exit code."""
    (folder,) = arguments
    for schema in schemas:
        path = Path(folder) / f"{schema['title'].replace('/', '-')}.schema.json"
        path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0
