# SPDX-License-Identifier: Apache-2.0
"""Write the software bill of materials of a wheel beside it, in CycloneDX 1.6.

It lists the Python packages that pip installs with the wheel, in the versions that were tested (requirements/run.txt),
and the Debian packages whose libraries are in the wheel. The same wheel on the same system gives the same file.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def locked(text: str) -> list[Json]:
    """Return the packages of a file of requirements with hashes as components."""
    components = []
    for name, version, marker, hashes in re.findall(
        r"^([\w.-]+)==(\S+)(?: ; ([^\\\n]+?))? \\\n((?:    --hash=.*\n)+)", text, re.MULTILINE
    ):
        component: Json = {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "scope": "required",
        }
        # Each is that of one file which pip may choose: none is that of the package.
        properties = [{"name": "hopscope:file-sha256", "value": each} for each in re.findall(r"sha256:(\w+)", hashes)]
        if marker:
            properties.append({"name": "hopscope:marker", "value": marker})
        components.append({**component, "properties": properties})
    return components


def bundled(wheel: Path) -> list[Json]:
    """Return the libraries in a wheel as components, with the versions of this system's packages that they are from."""
    components = []
    with zipfile.ZipFile(wheel) as files:
        for path in sorted(name for name in files.namelist() if re.search(r"/_lib/[^/]+\.so[.\d]*$", name)):
            name = path.rpartition("/")[2]
            owner = _said("dpkg", "-S", f"*/{name}").partition(":")[0]
            version = _said("dpkg-query", "-W", "-f", "${Version}\n", owner).splitlines()[0]
            components.append(
                {
                    "type": "library",
                    "bom-ref": f"pkg:deb/debian/{owner}@{version}#{name}",
                    "name": owner,
                    "version": version,
                    "purl": f"pkg:deb/debian/{owner}@{version}",
                    "scope": "required",
                    "hashes": [_sha256(files.read(path))],
                    "properties": [{"name": "hopscope:file", "value": path}],
                }
            )
    return components


def bill(wheel: Path, requirements: str) -> Json:
    """Return the document."""
    name, version = wheel.name.split("-")[:2]
    own = f"pkg:pypi/{name}@{version}"
    components = [*locked(requirements), *bundled(wheel)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": name,
                "version": version,
                "purl": own,
                "hashes": [_sha256(wheel.read_bytes())],
            }
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [each["bom-ref"] for each in components]}],
    }


def _sha256(content: bytes) -> Json:
    return {"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}


def _said(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> int:
    """Write the bill of the wheel and the requirements that are named on the command line."""
    wheel, requirements = map(Path, sys.argv[1:])
    out = wheel.with_suffix(".cdx.json")
    out.write_text(json.dumps(bill(wheel, requirements.read_text()), indent=1) + "\n")
    print(f"{out.name}: the packages and libraries that come with the wheel")
    return 0


if __name__ == "__main__":
    sys.exit(main())
