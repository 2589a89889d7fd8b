"""The bill of materials of a wheel (PEP 770, CycloneDX): what its libraries hold beside our code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "components.txt"
"""CMake's list: a line of name, version, licence and what of it is there for each (cmake/defaults.cmake)."""


def component(name: str, version: str, licence: str, what: str = "", kind: str = "generic") -> dict[str, Any]:
    """`licence`: an SPDX expression, or words, which have lower case "with"."""
    url = f"pkg:{kind}/{name.replace('+', '%2B')}@{version}"
    licences: dict[str, Any] = {"license": {"name": licence}} if " with " in licence else {"expression": licence}
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url, "licenses": [licences],
            **({"description": what} if what else {})}


def write(folder: Path, name: str, version: str, build: Path) -> None:
    """Add `sboms/NAME.cdx.json` to the `.dist-info` in `folder`, of a distribution whose libraries `build` holds."""
    own = component(name, version, "Apache-2.0", kind="pypi")
    parts = [component(*line.split("\t")) for line in (build / NAME).read_text().splitlines()]
    made = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": own},
        "components": parts,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    (folder / "sboms").mkdir(exist_ok=True)
    (folder / "sboms" / f"{name}.cdx.json").write_text(json.dumps(made, indent=2) + "\n")
