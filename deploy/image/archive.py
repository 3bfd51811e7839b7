#!/usr/bin/env python3
"""The root that bare_root.py made, as an image of one layer that container runtimes take in.

    python archive.py ROOT localhost/tidemark-project:1 image.tar
    ctr --namespace k8s.io images import image.tar

For a machine without Docker. Entry point, user, variables and folder are those of the Dockerfile; there is no health
check, which Kubernetes does not look at. Needs root, for the files keep their owners, and room for the root twice.
"""

import argparse
import hashlib
import json
import subprocess
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

IMAGE = "etc/tidemark/image.json"
OF_THE_RUNTIME = ("dev", "proc", "sys")
"""The folders that a container gets from its runtime, as far as there is anything in them."""


def configuration(image, layer):
    """The configuration that starts a container of the image, by what bare_root.py has read from the Dockerfile."""
    started = {
        "User": image["USER"],
        "WorkingDir": image["WORKDIR"],
        "Entrypoint": json.loads(image["ENTRYPOINT"]),
        "Cmd": json.loads(image["CMD"]),
        "Env": [f"{name}={value}" for name, value in image["ENV"].items()],
    }
    layers = {"type": "layers", "diff_ids": [f"sha256:{layer}"]}
    return {"architecture": "amd64", "os": "linux", "config": started, "rootfs": layers}


def pack(root, name, archive):
    """Write the archive."""
    with tempfile.NamedTemporaryFile(dir=archive.parent, suffix=".layer") as layer:
        without = [f"--exclude=./{folder}/*" for folder in OF_THE_RUNTIME]
        subprocess.run(["tar", "--numeric-owner", *without, "-C", root, "-cf", layer.name, "."], check=True)
        with Path(layer.name).open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        image = json.loads((root / IMAGE).read_text())
        config = json.dumps(configuration(image, digest)).encode()
        named = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = [{"Config": named, "RepoTags": [name], "Layers": ["layer.tar"]}]
        with tarfile.open(archive, "w") as target:
            for path, content in ((named, config), ("manifest.json", json.dumps(manifest).encode())):
                entry = tarfile.TarInfo(path)
                entry.size = len(content)
                target.addfile(entry, BytesIO(content))
            target.add(layer.name, "layer.tar")


def main():
    """Pack the root."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("name", help="name and tag of the image, whole as manifests have it: with the host before it")
    parser.add_argument("archive", type=Path)
    given = parser.parse_args()
    pack(given.root.resolve(), given.name, given.archive.resolve())


if __name__ == "__main__":
    main()
