"""The overlays render; each object is what Kubernetes takes; and what objects say of each other by name is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from deploy_kustomize import Object, containers, key, pod_of, render

from dags.form import DEFAULTS_VARIABLE, defaults_from, form
from schemas.topics import TOPICS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "infra" / "kubernetes"
KUBERNETES = "1.33"
OPERATORS = {
    "kafka.strimzi.io/v1": {"Kafka", "KafkaNodePool", "KafkaTopic"},
    "flink.apache.org/v1beta1": {"FlinkDeployment"},
}
BY_HAND = {("Secret", "registry"), ("Secret", "api-key"), ("Secret", "signing-key"), ("ConfigMap", "verify-key")}
"""What the operator makes: see infra/kubernetes/README.md."""


@pytest.fixture(params=["small", "production"])
def objects(request: pytest.FixtureRequest) -> list[Object]:
    return render(FOLDER / "overlays" / request.param)


def test_every_object_is_what_kubernetes_takes(objects: list[Object]) -> None:
    for one in objects:
        if one["apiVersion"] in OPERATORS:
            assert one["kind"] in OPERATORS[one["apiVersion"]]
        else:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)


def test_the_check_would_see_a_misspelt_field(objects: list[Object]) -> None:
    broken = next(one for one in objects if key(one) == ("Deployment", "online"))
    broken["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


def test_what_objects_name_is_there(objects: list[Object]) -> None:
    there = {key(one) for one in objects} | BY_HAND
    named = {(kind, name) for one in objects for kind, name in references(one)}
    assert named <= there, named - there


def references(one: Object) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    pod = pod_of(one) or {}
    for volume in pod.get("volumes", []):
        if claim := volume.get("persistentVolumeClaim"):
            found.append(("PersistentVolumeClaim", claim["claimName"]))
        if given := volume.get("configMap"):
            found.append(("ConfigMap", given["name"]))
        if secret := volume.get("secret"):
            found.append(("Secret", secret["secretName"]))
    for container in containers(one):
        found += [("ConfigMap", source["configMapRef"]["name"]) for source in container.get("envFrom", [])]
        for variable in container.get("env", []):
            if secret := variable.get("valueFrom", {}).get("secretKeyRef"):
                found.append(("Secret", secret["name"]))
    if one["kind"] == "HorizontalPodAutoscaler":
        found.append((one["spec"]["scaleTargetRef"]["kind"], one["spec"]["scaleTargetRef"]["name"]))
    if one["kind"] == "RoleBinding":
        found += [("Role", one["roleRef"]["name"]), ("ServiceAccount", one["subjects"][0]["name"])]
    return found


def test_selectors_and_mounts_fit(objects: list[Object]) -> None:
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in objects if pod_of(one)]
    for one in objects:
        if one["kind"] in ("Service", "PodDisruptionBudget"):
            selector = one["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            assert any(wanted.items() <= given.items() for given in labels), key(one)
        pod = pod_of(one)
        if pod:
            claims = [claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])]
            volumes = {volume["name"] for volume in pod.get("volumes", [])} | set(claims)
            assert {m["name"] for c in containers(one) for m in c.get("volumeMounts", [])} <= volumes, key(one)


def test_every_pod_is_locked_down(objects: list[Object]) -> None:
    for one in objects:
        pod = pod_of(one)
        if not pod:
            continue
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in containers(one):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"]
            assert re.fullmatch(r"[a-z0-9-]+(/[a-z0-9-]+)?:\d[\w.-]*", container["image"]), container["image"]


def test_only_what_signs_releases_has_the_signing_key(objects: list[Object]) -> None:
    assert [key(one)[1] for one in objects if ("Secret", "signing-key") in references(one)] == ["catalogue"]


def test_no_secret_is_written_down() -> None:
    for path in FOLDER.rglob("*.yaml"):
        assert "kind: Secret" not in path.read_text(), path
        assert "PRIVATE KEY" not in path.read_text(), path


def test_the_topics_are_those_of_the_contracts(objects: list[Object]) -> None:
    found = {name: one["spec"] for one in objects for kind, name in [key(one)] if kind == "KafkaTopic"}
    assert set(found) == set(TOPICS)
    for name, topic in TOPICS.items():
        assert found[name]["partitions"] == topic.num_partitions
        settings = {setting: str(value) for setting, value in found[name].get("config", {}).items()}
        assert settings == dict(topic.settings)


def test_patches_apply(request: pytest.FixtureRequest) -> None:
    small, production = (
        {key(one): one for one in render(FOLDER / "overlays" / name)} for name in ("small", "production")
    )
    assert small["HorizontalPodAutoscaler", "online"]["spec"]["maxReplicas"] == 2
    assert production["HorizontalPodAutoscaler", "online"]["spec"]["maxReplicas"] == 60
    (container,) = production["Deployment", "online"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "6Gi"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert small["Kafka", "beforehand"]["spec"]["kafka"]["config"]["min.insync.replicas"] == 1
    assert small["Deployment", "worker"]["spec"]["replicas"] == 1
    assert small["Deployment", "catalogue"]["spec"]["replicas"] == 1
    assert production["Deployment", "catalogue"]["spec"]["replicas"] == 2
    assert container["image"] == "beforehand/online:0.1.0"


def test_a_patch_without_a_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"patches": [{"target": {"kind": "Deployment", "name": "x"}, "patch": "[]"}]})
    )
    with pytest.raises(ValueError, match="no target"):
        render(tmp_path)


def test_the_redis_cluster_can_be_taken_in(tmp_path: Path) -> None:
    settings = {"resources": [str(FOLDER / "base")], "components": [str(FOLDER / "components" / "redis-cluster")]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(settings))
    found = {key(one): one for one in render(tmp_path)}
    redis = found["StatefulSet", "redis"]
    assert redis["spec"]["replicas"] == 6
    (container,) = containers(redis)
    assert "--cluster-enabled" in container["command"]
    assert container["volumeMounts"]
    kubernetes_validate.validate(redis, KUBERNETES, strict=True)
    kubernetes_validate.validate(found["Job", "create-redis-cluster"], KUBERNETES, strict=True)


def test_the_autoscalers_metrics_come_from_the_adapter() -> None:
    online = {key(one): one for one in render(FOLDER / "base")}["HorizontalPodAutoscaler", "online"]
    wanted = {metric["pods"]["metric"]["name"] for metric in online["spec"]["metrics"]}
    rules = yaml.safe_load((FOLDER / "adapter-values.yaml").read_text())["rules"]["custom"]
    assert {rule["name"]["as"] for rule in rules} == wanted
    alerts = yaml.safe_load((ROOT / "infra" / "dashboards" / "alerts.yaml").read_text())
    recorded = {rule["record"] for group in alerts["groups"] for rule in group["rules"] if "record" in rule}
    assert {rule["seriesQuery"].partition("{")[0] for rule in rules} <= recorded


def test_the_follower_follows_what_airflow_builds() -> None:
    values: dict[str, Any] = yaml.safe_load((FOLDER / "airflow-values.yaml").read_text())
    environ = {one["name"]: one["value"] for one in values["env"]}
    built = form(defaults_from(environ))
    (container,) = containers({key(one): one for one in render(FOLDER / "base")}["Deployment", "catalogue"])
    assert container["args"][container["args"].index("--data") + 1] == built["data"].default
    mounted = {mount["mountPath"] for mount in values["scheduler"]["extraVolumeMounts"] if mount["name"] == "state"}
    for name in ("catalogue", "events"):
        assert any(str(built[name].default).startswith(f"{path}/") for path in mounted), DEFAULTS_VARIABLE


def test_airflows_chart_runs_the_image_that_is_built_here() -> None:
    values: dict[str, Any] = yaml.safe_load((FOLDER / "airflow-values.yaml").read_text())
    assert values["images"]["airflow"] == {"repository": "beforehand/airflow", "tag": "0.1.0"}
    locked = (ROOT / "pyproject.toml").read_text()
    assert f"apache-airflow=={values['airflowVersion']}" in locked
    assert (
        f"AIRFLOW__CORE__DAGS_FOLDER={values['config']['core']['dags_folder']}"
        in (ROOT / "infra" / "containers" / "Dockerfile.airflow").read_text()
    )
    for block in ("extraEnv", "extraEnvFrom"):
        assert isinstance(yaml.safe_load(values[block]), list)
