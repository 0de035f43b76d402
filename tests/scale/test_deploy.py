"""Lint of deploy/: what these files say, since neither Docker, Slurm nor Kubernetes runs here."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from skypart.version import __version__

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = ROOT / "Dockerfile"
SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sbatch"))


def options_of(command: str) -> str:
    from typer.testing import CliRunner

    from skypart.cli import app

    return re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output)


def tool(name: str) -> str:
    """The path of a linter, of this environment if it has it; skips the test if there is none."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; the extra `dev` has it")
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_slurm_scripts_are_valid_shell(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text()
    assert "set -euo pipefail" in text and "Not run" in text


def test_shell_scripts_pass_shellcheck() -> None:
    scripts = [*SCRIPTS, *(ROOT / "recipes").rglob("*.sh")]
    assert len(scripts) >= 3
    subprocess.run([tool("shellcheck"), *map(str, scripts)], check=True)


def test_dockerfile_passes_hadolint() -> None:
    subprocess.run([tool("hadolint"), str(DOCKERFILE)], check=True)


def test_yaml_files_pass_yamllint() -> None:
    subprocess.run([tool("yamllint"), "--strict", "deploy", "mkdocs.yml"], check=True, cwd=ROOT)


def test_compose_file_meets_the_schema_of_compose() -> None:
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml")]
    subprocess.run(command, check=True)


def test_options_used_in_deploy_exist() -> None:
    index, maps, serve = options_of("index"), options_of("maps"), options_of("serve")
    for option in ("--engine", "--address", "--store"):
        assert option in index
    assert "--move-to" in maps
    for option in ("--host", "--port", "--store"):
        assert option in serve
    used = re.findall(r"--(?:engine|address) \S+", (DEPLOY / "kuberay/index-job.yaml").read_text())
    assert used == ["--engine ray", "--address auto"]


def test_dockerfile_is_multi_stage_and_not_root() -> None:
    lines = [line.strip() for line in DOCKERFILE.read_text().splitlines()]
    stages = [line for line in lines if line.startswith("FROM ")]
    assert len(stages) == 2 and stages[0].endswith(" AS build")
    assert all(":" in stage and ":latest" not in stage for stage in stages)
    last = lines[lines.index(stages[1]) :]
    users = [line for line in last if line.startswith("USER ")]
    assert users and users[-1] not in ("USER root", "USER 0")
    assert not any(line.startswith("ADD ") for line in lines)
    assert any(line.startswith("HEALTHCHECK") for line in last)
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert copied and all((ROOT / word).exists() for word in copied), "only what is in the repository is copied"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for file in (DOCKERFILE, DEPLOY / "compose.yaml"):
        named = re.search(r"EXTRAS(?:=|: \")\[([\w,]+)\]", file.read_text())
        assert named is not None and set(named[1].split(",")) <= set(extras), file


def test_images_are_named_by_the_version_that_the_dockerfile_builds() -> None:
    for file in (DOCKERFILE, DEPLOY / "compose.yaml", DEPLOY / "kuberay/index-job.yaml"):
        assert set(re.findall(r"skypart:([\d.]+)", file.read_text())) == {__version__}, file


def test_compose_file_names_only_services_and_volumes_it_has() -> None:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = content["services"]
    assert {"milvus", "proxy", "replica1", "replica2", "replica3"} <= set(services)
    for name, service in services.items():
        needed = service.get("depends_on", [])
        assert set(needed) <= set(services), name
        assert ":" in service["image"] and not service["image"].endswith(":latest")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source.startswith(("./", "$")) or source in content["volumes"]
    assert services["proxy"]["ports"] == ["127.0.0.1:8080:8080"], "nothing is public unless asked for"
    upstream = re.findall(r"server (replica\d):8000", (DEPLOY / "nginx.conf").read_text())
    assert upstream == ["replica1", "replica2", "replica3"]


def test_kuberay_job_has_what_a_ray_job_needs() -> None:
    job: dict[str, Any] = yaml.safe_load((DEPLOY / "kuberay/index-job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    pinned = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert pinned is not None and cluster["rayVersion"] == pinned[1]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]}
        assert all(container["securityContext"]["runAsNonRoot"] for container in pod["containers"])


def test_kuberay_pods_meet_the_schema_of_kubernetes() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="the extra `dev` has it")
    job: dict[str, Any] = yaml.safe_load((DEPLOY / "kuberay/index-job.yaml").read_text())
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, **group["template"]}
        kubernetes_validate.validate(pod, "1.30", strict=True)
        pod["spec"] = pod["spec"] | {"container": []}
        with pytest.raises(kubernetes_validate.ValidationError, match="container"):
            kubernetes_validate.validate(pod, "1.30", strict=True)


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
def test_caddyfile_is_valid() -> None:
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")]
    subprocess.run(command, check=True, capture_output=True)
