"""A check of the image's packages for known vulnerabilities: `python audit.py [SERVICE]`, with pip-audit beside it.

SERVICE is one that pip-audit asks: `pypi`, the JSON API of the package index, or `osv`. It ends with 0 only where every
package was looked up and none has a vulnerability that is known; with 1 where one has, and with 2 where some could not
be looked up.
"""

import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).with_name("requirements.lock")


def verdict(document):
    """The text to print and the exit code, by pip-audit's answer in JSON."""
    dependencies = document["dependencies"]
    unknown = [each["name"] for each in dependencies if "skip_reason" in each]
    vulnerabilities = [
        f"{each['name']} {each['version']}: {vulnerability['id']}, mended in "
        f"{', '.join(vulnerability['fix_versions']) or 'no release yet'}"
        for each in dependencies
        for vulnerability in each.get("vulns", ())
    ]
    lines = [*vulnerabilities]
    if vulnerabilities:
        lines.append(
            "Raise these in constraints.txt or deploy/image/requirements.txt, then `make lock` and `make test`."
        )
    if dependencies and len(unknown) == len(dependencies):
        lines.append(
            f"Nothing was audited: the service knows none of the {len(unknown)} packages. A mirror of a package index "
            "often serves files alone, without the JSON API that tells of vulnerabilities; ask again where the index "
            "itself can be reached, or another service: `make audit-deps SERVICE=osv`."
        )
    elif unknown:
        lines.append(f"Not audited, as the service does not know them: {', '.join(unknown)}.")
    elif not vulnerabilities:
        lines.append(f"{len(dependencies)} packages, and none has a vulnerability that is known.")
    return "\n".join(lines), 1 if vulnerabilities else 2 if unknown or not dependencies else 0


def main(service):
    """Ask, print and end."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip", "--require-hashes"]
    options = ["--vulnerability-service", service, "--format", "json", "--progress-spinner", "off"]
    asked = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    try:
        text, code = verdict(json.loads(asked.stdout))
    except ValueError:
        reason = asked.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        text, code = f"Nothing was audited: the service {service!r} could not be asked ({reason[0]}).", 2
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or ["pypi"]))
