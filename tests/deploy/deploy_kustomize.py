"""A small kustomize: what the overlays here use of it, and a refusal of what they don't. No cluster, no engine."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
KNOWN = {
    *("apiVersion", "kind", "namespace", "resources", "components", "labels", "configMapGenerator"),
    *("generatorOptions", "images", "patches"),
}
CLUSTER_WIDE = {"Namespace"}


def render(folder: Path) -> list[Object]:
    """The objects of a kustomization, patched. Raises when a path or a patch's target is missing."""
    return _apply(folder, [])


def key(one: Object) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def _apply(folder: Path, objects: list[Object]) -> list[Object]:
    settings = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := set(settings) - KNOWN:
        raise ValueError(f"{folder}: this renderer does not know {unknown}")
    for name in settings.get("resources", []):
        objects = [*objects, *_load((folder / name).resolve())]
    objects += [_config_map(folder, one) for one in settings.get("configMapGenerator", [])]
    if len({key(one) for one in objects}) != len(objects):
        raise ValueError(f"{folder}: two objects of one kind and name")
    for name in settings.get("components", []):
        objects = _apply((folder / name).resolve(), objects)
    for patch in settings.get("patches", []):
        _patch(folder, patch, objects)
    for image in settings.get("images", []):
        _retag(image, objects)
    for one in objects:
        if settings.get("namespace") and one["kind"] not in CLUSTER_WIDE:
            one["metadata"]["namespace"] = settings["namespace"]
        for labels in settings.get("labels", []):
            one["metadata"]["labels"] = {**one["metadata"].get("labels", {}), **labels["pairs"]}
    return objects


def _load(path: Path) -> list[Object]:
    if path.is_dir():
        return _apply(path, [])
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def _config_map(folder: Path, settings: Object) -> Object:
    data = dict(line.split("=", 1) for line in settings.get("literals", []))
    data |= {Path(name).name: (folder / name).read_text() for name in settings.get("files", [])}
    labels = settings.get("options", {}).get("labels", {})
    metadata = {"name": settings["name"], **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _patch(folder: Path, patch: Object, objects: list[Object]) -> None:
    if "path" in patch:
        change = yaml.safe_load((folder / patch["path"]).read_text())
        target = [one for one in objects if key(one) == key(change)]
        if len(target) != 1:
            raise ValueError(f"{folder}/{patch['path']}: nothing to patch is called {key(change)}")
        target[0].update(_merged(target[0], change))
        return
    wanted = patch["target"]
    found = [one for one in objects if one["kind"] == wanted["kind"] and wanted.get("name") in (None, key(one)[1])]
    if not found:
        raise ValueError(f"{folder}: no target {wanted}")
    for one in found:
        for act in yaml.safe_load(patch["patch"]):
            _act(one, act)


def _merged(base: Any, change: Any) -> Any:
    """Strategic merge, as far as it goes here: lists of named things by name, other lists replaced."""
    if isinstance(base, dict) and isinstance(change, dict):
        return {**base, **{name: _merged(base.get(name), value) for name, value in change.items()}}
    if (
        isinstance(base, list)
        and isinstance(change, list)
        and all("name" in one for one in change if isinstance(one, dict))
    ):
        if not all(isinstance(one, dict) for one in change):
            return change
        names = [one["name"] for one in base]
        merged = [_merged(one, next((c for c in change if c["name"] == one["name"]), {})) for one in base]
        return merged + [one for one in change if one["name"] not in names]
    return copy.deepcopy(change)


def _act(one: Object, act: Object) -> None:
    *path, last = [part.replace("~1", "/").replace("~0", "~") for part in act["path"].strip("/").split("/")]
    place: Any = one
    for part in path:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if act["op"] != "replace" or last not in place:
        raise ValueError(f"can't {act['op']} {act['path']} of {key(one)}")
    place[last] = act["value"]


def _retag(image: Object, objects: list[Object]) -> None:
    for one in objects:
        for container in containers(one):
            if container["image"] == image["name"]:
                container["image"] = f"{image['name']}:{image['newTag']}"


def pod_of(one: Object) -> Object | None:
    """The pod's spec of a Deployment, a StatefulSet or a Job."""
    return one["spec"]["template"]["spec"] if one["kind"] in ("Deployment", "StatefulSet", "Job") else None


def containers(one: Object) -> list[Object]:
    pod = pod_of(one)
    return [*pod["containers"], *pod.get("initContainers", [])] if pod else []
