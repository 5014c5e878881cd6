"""Take uPlot from npm again, unmodified: `make vendor`. `versions.json` says which version, and what its files must be.

python renew.py            takes the version that versions.json names, and compares the digests
python renew.py 1.6.33     takes another version, and writes its digests
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
VERSIONS = HERE / "versions.json"
FILES = {
    "package/dist/uPlot.iife.min.js": "uPlot.iife.min.js",
    "package/dist/uPlot.min.css": "uPlot.min.css",
    "package/LICENSE": "uPlot.LICENSE",
}
"""Files of the package, and what they are called here."""


def renew(version: str | None) -> None:
    """Fetch a version and write its files.

    Args:
        version: which; the one that versions.json names if None.

    Raises:
        SystemExit: a file has another digest than versions.json says.
    """
    recorded = json.loads(VERSIONS.read_text("utf-8"))
    wanted = version or recorded["version"]
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"{recorded['package']}@{wanted}"]
        packed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.split()[-1]
        content = (Path(folder) / packed).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {name: archive.extractfile(member).read() for member, name in FILES.items()}  # pyright: ignore[reportOptionalMemberAccess] - files, not folders
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    if version is None and digests != recorded["sha256"]:
        raise SystemExit(f"{recorded['package']} {wanted} is not what it was: {digests}, {recorded['sha256']} recorded")
    for name, data in files.items():
        (HERE / name).write_bytes(data)
    VERSIONS.write_text(json.dumps({**recorded, "version": wanted, "sha256": digests}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    renew(sys.argv[1] if len(sys.argv) > 1 else None)
