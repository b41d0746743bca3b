"""Try the package as it is deployed, and put the table into docs/platforms.md.

    make deployments [ARGS="--only standalone"]

Each deployment writes rows exactly once to the embedded broker and reads them. A result is kept in docs/results with its day.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from spark_producer.broker import LocalBroker
from tests.matrix.standalone import standalone
from tests.platforms.environments import ROOT
from tests.platforms.page import with_part

TRIED = ROOT / "docs" / "results" / "deployments.jsonl"
PAGE = ROOT / "docs" / "platforms.md"
BEGIN, END = "<!-- made by make deployments -->", "<!-- end of deployments -->"
PROGRAM = Path(__file__).with_name("deployment_program.py")
ROWS = 1_000
SECONDS = 300
SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1")
"""What a worker of `standalone` has room for."""


class Setting(NamedTuple):
    """How a deployment is started: the arguments of spark-submit, the environment, and what stands before the command."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = {}
    before: tuple[str, ...] = ()


class Deployment(NamedTuple):
    """A deployment, and what its failure must say if packages are lacking on purpose; else every row is there once."""

    name: str
    setting: Callable[[Path, ExitStack], Setting]
    wanted: str = ""


def installed(home: Path, stack: ExitStack) -> Setting:
    """Two workers whose Python has the package."""
    return Setting(("--master", stack.enter_context(standalone(home)), *SMALL))


def environment_without(home: Path, *lacking: str) -> Path:
    """The Python of an environment with everything of ours but the distributions or modules that begin with these names."""
    place = home / f"without-{'-'.join(lacking)}"
    venv.create(place, with_pip=False, symlinks=True)
    (inside,) = place.glob("lib/python*/site-packages")
    (here,) = (Path(sys.prefix) / "lib").glob("python*/site-packages")
    for each in here.iterdir():
        left_out = each.name.removeprefix("__editable__").lstrip("_.").startswith(lacking)
        if not left_out and not (inside / each.name).exists():
            (inside / each.name).symlink_to(each)
    return place / "bin" / "python"


def python_by_folder(home: Path, elsewhere: Path) -> str:
    """A Python that is ours on the driver, and another one in the folders of the workers."""
    script = home / "python"
    lines = [
        "#!/bin/sh",
        f'case "$PWD" in {home}/worker-*) exec {elsewhere} "$@";; esac',
        f'exec {sys.executable} "$@"',
    ]
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    return str(script)


def py_files(home: Path, stack: ExitStack) -> Setting:
    """Two workers whose Python lacks the package, which comes as a zip."""
    archive = home / "pyproducer.zip"
    subprocess.run(
        ["make", "zip", f"ZIP={archive}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    without = str(environment_without(home, "pyproducer", "spark_producer"))
    python = {"PYSPARK_PYTHON": without, "PYSPARK_DRIVER_PYTHON": without, "PYTHONPATH": ""}
    setting = installed(home, stack)
    return Setting((*setting.arguments, "--py-files", str(archive)), python)


def lacking(*names: str) -> Callable[[Path, ExitStack], Setting]:
    """Two workers whose Python lacks packages that the driver has."""

    def setting(home: Path, stack: ExitStack) -> Setting:
        python = python_by_folder(home, environment_without(home, *names))
        return Setting(installed(home, stack).arguments, {"PYSPARK_PYTHON": python, "PYTHONPATH": ""})

    return setting


def local_cluster(_home: Path, _stack: ExitStack) -> Setting:
    """Two executors in processes of their own."""
    return Setting(("--master", "local-cluster[2,1,1024]"))


def read_only(home: Path, _stack: ExitStack) -> Setting:
    """A root that cannot be written, a user whose home does not exist, and one folder to write, as pods have an emptyDir."""
    scratch = home / "scratch"
    scratch.mkdir()
    mounts = f"mount --bind {scratch} {scratch} && mount -o remount,bind,ro / && ! touch /written 2>/dev/null"
    shell = (
        f'{mounts} && cd {scratch} && exec {shlex.quote(str(Path(sys.executable)))} -c {shlex.quote(AS_COMMAND)} "$@"'
    )
    conf = ("--conf", f"spark.local.dir={scratch}", "--conf", f"spark.sql.warehouse.dir={scratch}/warehouse")
    java = f"-Djava.io.tmpdir={scratch} -Duser.home=/nonexistent"
    environment = {"HOME": "/nonexistent", "TMPDIR": str(scratch), "JDK_JAVA_OPTIONS": java}
    before = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell, "sh")
    return Setting(("--master", "local[2]", *conf), environment, before)


AS_COMMAND = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"


DEPLOYMENTS = (
    Deployment("standalone, two workers: installed", installed),
    Deployment("standalone, two workers: `--py-files`", py_files),
    Deployment(
        "standalone, two workers that lack the package",
        lacking("pyproducer", "spark_producer"),
        "No module named 'spark_producer'",
    ),
    Deployment("standalone, two workers that lack crc32c", lacking("crc32c"), "crc32c is not installed for"),
    Deployment("local-cluster, two executors", local_cluster),
    Deployment("read-only root, no home", read_only),
)


def outcome(deployment: Deployment) -> dict[str, str]:
    """Return what has become of a deployment."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        setting = deployment.setting(home, stack)
        broker = stack.enter_context(LocalBroker())
        broker.create_topic("rows", 2)
        submit = str(Path(sys.executable).with_name("spark-submit"))
        command = [
            *setting.before,
            submit,
            *setting.arguments,
            str(PROGRAM),
            broker.bootstrap_servers,
            "rows",
            str(ROWS),
        ]
        usual = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            command, cwd=home, env={**os.environ, **usual, **setting.environment}, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return {"name": deployment.name, "day": day, **judged(deployment, done.stdout, done.stderr)}


def judged(deployment: Deployment, printed: str, errors: str) -> dict[str, str]:
    """Return what is wrong with what a job has printed ("" if nothing is), and the versions that it ran with."""
    reported = [json.loads(line) for line in printed.splitlines() if line.startswith('{"values"')]
    result = {"java": "", "spark": "", "wrong": ""}
    if deployment.wanted:
        said = deployment.wanted in printed + errors and not reported
        return result | {"said": deployment.wanted, "wrong": "" if said else f"it did not say so: {errors[-3000:]}"}
    if not reported:
        return result | {"wrong": f"{printed[-1000:]}{errors[-3000:]}" or "nothing was printed"}
    found = sorted(int(value.partition("|")[0]) for value in reported[0]["values"])
    wrong = "" if found == list(range(ROWS)) else f"{len(found)} rows instead of {ROWS}, each once"
    return result | {"java": reported[0]["java"], "spark": reported[0]["spark"], "wrong": wrong}


def load() -> list[dict[str, str]]:
    """The results of all deployments."""
    return [json.loads(line) for line in TRIED.read_text(encoding="utf-8").splitlines()] if TRIED.exists() else []


def keep(result: dict[str, str]) -> None:
    """Replace the result of a deployment, and the table of the page."""
    kept = {line["name"]: line for line in load()} | {result["name"]: result}
    lines = [kept[each.name] for each in DEPLOYMENTS if each.name in kept]
    TRIED.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")


def with_table(page: str, lines: list[dict[str, str]]) -> str:
    """The page with the table of these results.

    Raises:
        ValueError: the page has no marks for it.
    """
    rows = ["| deployment | Spark | Java | outcome | tried |", "| --- " * 5 + "|"]
    for line in lines:
        good = f"refused: `{line['said']}`" if "said" in line else "every row once"
        said = f"**no**: {line['wrong'].strip().splitlines()[-1]}" if line["wrong"] else good
        rows.append(f"| {line['name']} | {line['spark'] or '–'} | {line['java'] or '–'} | {said} | {line['day']} |")
    return with_part(page, BEGIN, END, "\n".join(rows))


def main() -> int:
    """Try and print; how many deployments failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="try the deployments whose names have this in them, as standalone")
    only = parser.parse_args().only
    failed = 0
    for deployment in DEPLOYMENTS:
        if only in deployment.name:
            result = outcome(deployment)
            keep(result)
            print(f"{deployment.name}: {result['wrong'] or 'as it should be'}", flush=True)
            failed += bool(result["wrong"])
    return failed


if __name__ == "__main__":
    sys.exit(main())
