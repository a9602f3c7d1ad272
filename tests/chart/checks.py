"""The checks of the chart: each yields its name, and a complaint or nothing. Starts no process but andante and the compiler."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import kubernetes_validate
import started
import yaml
from cases import MORE, REFUSED
from helm_python import chart as helm
from helm_python.errors import HelmError

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "andante"
RENDERS = REPOSITORY / "deploy" / "kubernetes"
ANDANTE = os.environ.get("ANDANTE") or REPOSITORY / "target" / "debug" / "andante"
# The oldest version of Kubernetes that the tool knows and Chart.yaml allows, and the newest.
VERSIONS = ["1.32", "1.37"]
CUSTOM = {"keda.sh/v1alpha1", "monitoring.coreos.com/v1"}
# First line of each render.
HEAD = "# Made of deploy/helm/andante with ci/{}.yaml by `tests/chart/run --write`: change that, not this.\n"


def all_of_them(node, write):
    cases = {file.stem: yaml.safe_load(file.read_text()) for file in sorted((CHART / "ci").glob("*.yaml"))}
    # Helm tells of each symbolic link that it follows; only the package is made of the chart as it is.
    shapes = {
        **cases,
        **MORE,
        **{f"docs {number}": yaml.safe_load(text) for number, text in enumerate(blocks("# values.yaml\n"), 1)},
    }
    with tempfile.TemporaryDirectory() as folder, helm.Chart.load(shutil.copytree(CHART, f"{folder}/andante")) as chart:
        rendered = {name: render(chart, values) for name, values in shapes.items()}
        objects = {name: parsed(text) for name, text in rendered.items()}
        for name, values in shapes.items():
            yield f"helm lint, {name}", lint(f"{folder}/andante", values)
        for name in cases:
            yield f"deploy/kubernetes/{name}.yaml is the render", golden(name, rendered[name], write)
        for name in {file.stem for file in RENDERS.glob("*")} - set(cases):
            yield f"deploy/kubernetes/{name}.yaml", f"no ci/{name}.yaml makes it"
        for version in VERSIONS:
            yield f"kubernetes-validate --strict, {version}", native(objects, version)
        if node:
            yield "custom resources have the keys and types of their definitions", custom(objects, node)
        for values, part in REFUSED:
            yield f"refused: {json.dumps(values)}", refused(chart, values, part)
        yield "values.yaml and values.schema.json have the same keys", same_keys(chart.values, chart.schema)
        yield "every key of values.yaml has a comment", documented()
        yield "every empty value is set by some case", unset(chart.values, list(shapes.values()))
        yield "Chart.yaml has the version of Cargo.toml", same_version(chart)
        yield "the configuration: andante check", configuration(objects)
        for name in cases:
            yield f"andante starts as in {name}, and its probes say yes", starts(objects[name])
        yield "workers get the variables that andante names", variables(objects["gateway"])
        yield "no worker sees the CA's key", keyless(objects)
        yield "each reference leads to an object of the release", references(objects)
        yield "rules and dashboards are those of deploy/", copied(objects["watched"])
        yield "helm package makes the same chart", packaged(rendered["fleet"], cases["fleet"])
        yield "another chart takes the sidecar", taken(objects["sidecar"])


def render(chart, values):
    chart.validate_schema(values)
    files = chart.render(values, name="andante", namespace="default")
    if wrong := [path for path, text in files.items() if "<no value>" in text or not text.strip() and path.endswith(".txt")]:
        raise ValueError(f"without a value: {wrong}")
    files = {path: text.strip() for path, text in files.items() if path.endswith(".yaml")}
    # Sections without an object are left out.
    return "".join(f"---\n# Source: {path}\n{text}\n" for path, text in sorted(files.items()) if text)


def parsed(text):
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(objects, kind, name=None):
    return next(one for one in objects if one["kind"] == kind and name in (None, one["metadata"]["name"]))


def complaints(lines):
    return "\n".join(sorted(set(lines)))


def lint(path, values):
    report = helm.lint(path, values, strict=True)
    return complaints(f"{one['path']}: {one['error']}" for one in report["messages"] if one["severity"] > 1)


def golden(name, text, write):
    file = RENDERS / f"{name}.yaml"
    text = HEAD.format(name) + text
    if write:
        file.write_text(text)
    if not file.exists() or file.read_text() != text:
        return "it differs: see `tests/chart/run --write` and `git diff`"


def native(objects, version):
    found = []
    for name, each in objects.items():
        for one in each:
            if one["apiVersion"] in CUSTOM:
                continue
            try:
                kubernetes_validate.validate(one, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                found.append(f"{name}: {one['kind']} {one['metadata']['name']}: {error.message}")
    return complaints(found)


def custom(objects, node):
    """A literal of TypeScript may have no key that its type does not have, which the schemas' own validators let pass."""
    models = {"keda.sh/v1alpha1": "keda", "monitoring.coreos.com/v1": "prometheus-operator"}
    found = [one for each in objects.values() for one in each if one["apiVersion"] in CUSTOM]
    lines = [
        f'export const _{number}: import("@kubernetes-models/{models[one["apiVersion"]]}/{one["apiVersion"]}")'
        f".I{one['kind']} = {json.dumps(one)};"
        for number, one in enumerate(found)
    ]
    (node / "objects.ts").write_text("\n".join(lines))
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"]
    compiler = node / "node_modules" / "typescript" / "bin" / "tsc"
    ran = subprocess.run(["node", compiler, *options, "objects.ts"], cwd=node, capture_output=True, text=True)
    return ran.stdout + ran.stderr if ran.returncode or len(found) < 4 else None


def refused(chart, values, part):
    try:
        render(chart, values)
    except HelmError as error:
        return None if part in str(error) else f"refused for another reason: {error}"
    return "it was accepted"


def same_keys(values, schema, path=""):
    """Objects whose keys the schema does not name are the user's. Two keys are a parent chart's."""
    if "properties" not in schema:
        return None
    known, there = set(schema["properties"]) - ({"global", "enabled"} if not path else set()), set(values)
    found = [f"{path}{key}: in one of them alone" for key in known ^ there]
    if schema.get("additionalProperties") is not False:
        found.append(f"{path}: unknown keys are accepted")
    return complaints(
        [*found, *filter(None, (same_keys(values[key], schema["properties"][key], f"{path}{key}.") for key in known & there))]
    )


def documented():
    """A comment counts for the keys below it, up to an empty line or one that is less indented."""
    found, commented, block = [], set(), None
    for line in (CHART / "values.yaml").read_text().splitlines():
        depth = len(line) - len(line.lstrip())
        if block is not None and (not line.strip() or depth > block):
            continue
        block = depth if line.endswith(": |") else None
        commented = {each for each in commented if line.strip() and each <= depth}
        if line.lstrip().startswith("#"):
            commented.add(depth)
        elif line.endswith(":"):
            # The comment of a section covers all keys in it.
            commented |= {depth + 2} if depth in commented else set()
        elif line.strip() and depth not in commented:
            found.append(line)
    return complaints(found)


def unset(defaults, cases, path=""):
    """A value that is empty switches something off, which only a case that sets it renders."""
    found = []
    for key, default in defaults.items():
        inside = [case[key] for case in cases if key in case]
        if isinstance(default, dict) and default:
            found += (unset(default, inside, f"{path}{key}.") or "").splitlines()
        elif not default and not any(inside):
            found.append(path + key)
    return complaints(found)


def same_version(chart):
    manifest = (REPOSITORY / "Cargo.toml").read_text()
    wanted = next(line.split('"')[1] for line in manifest.splitlines() if line.startswith("version = "))
    if {chart.metadata["version"], chart.metadata["appVersion"]} != {wanted}:
        return f"Cargo.toml has {wanted}"


def andante(*arguments, **more):
    return subprocess.run([ANDANTE, *arguments], capture_output=True, text=True, env={**os.environ, **more})


def configuration(objects):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "andante.toml"
        file.write_text(of_kind(objects["gateway"], "ConfigMap", "andante")["data"]["andante.toml"])
        ran = andante("check", str(file))
    return ran.stdout + ran.stderr if ran.returncode else None


def starts(objects):
    containers = [one for pod in pods(objects) for one in [*pod.get("initContainers", []), *pod["containers"]]]
    (container,) = [one for one in containers if one["name"] == "andante"]
    return started.complaint(ANDANTE, container, of_kind(objects, "ConfigMap", "andante")["data"]["andante.toml"])


def variables(objects):
    with tempfile.TemporaryDirectory() as folder:
        made = andante("ca", "init", "--data", folder)
        options = ["--data", folder, "--at", "/trust", "--proxy", "http://andante:3128", "--format", "configmap"]
        ran = andante("env", *options, ANDANTE_INTERCEPT="api.example.com")
    if made.returncode or ran.returncode:
        return made.stderr + ran.stderr
    wanted, there = yaml.safe_load(ran.stdout)["data"], of_kind(objects, "ConfigMap", "andante-worker")["data"]
    # Two need files beside the bundle, and the bundle stands for the certificate alone.
    differing = wanted.keys() ^ there.keys() ^ {"JAVA_TOOL_OPTIONS", "PHP_INI_SCAN_DIR"}
    return complaints(
        [*differing, *(name for name in wanted if "/trust" not in wanted[name] and there.get(name) != wanted[name])]
    )


def pods(objects):
    return [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment"]


def keyless(objects):
    found = []
    for name, each in objects.items():
        for pod in pods(each):
            for container in pod["containers"]:
                mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
                if container["name"] == "worker" and mounts - {"andante-trust"}:
                    found.append(f"{name}: the worker mounts {mounts}")
    return complaints(found) if any(pods(objects["sidecar"])) else "there is no worker"


def references(objects):
    """Missing objects are the user's: values.yaml names them."""
    theirs = {"andante-ca", "admin", "kept", "store"}
    found = []
    for name, each in objects.items():
        there = {one["metadata"]["name"] for one in each} | theirs
        for pod in pods(each):
            volumes = {volume["name"] for volume in pod["volumes"]} if "volumes" in pod else set()
            wanted = [volume.get("configMap", {}).get("name") for volume in pod.get("volumes", [])]
            wanted += [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod.get("volumes", [])]
            for container in [*pod.get("initContainers", []), *pod["containers"]]:
                wanted += [source["configMapRef"]["name"] for source in container.get("envFrom", [])]
                lost = {mount["name"] for mount in container.get("volumeMounts", [])} - volumes
                found += [f"{name}: {container['name']} mounts {volume}" for volume in lost]
            found += [f"{name}: {missing}" for missing in set(filter(None, wanted)) - there]
    return complaints(found)


def copied(objects):
    deploy = REPOSITORY / "deploy"
    if of_kind(objects, "PrometheusRule")["spec"] != yaml.safe_load((deploy / "alerts.yml").read_text()):
        return "the PrometheusRule is not deploy/alerts.yml"
    files = list((deploy / "grafana").glob("*.json"))
    for file in files:
        data = of_kind(objects, "ConfigMap", f"andante-{file.stem}")["data"]
        if json.loads(data[file.name]) != json.loads(file.read_text()):
            return f"{file.name} differs"
    return None if files else "there are no dashboards"


def packaged(rendered, values):
    with tempfile.TemporaryDirectory() as folder:
        with helm.Chart.load(helm.package(CHART, destination=folder)) as chart:
            return None if render(chart, values) == rendered else "it renders something else"


PARENT = {
    "Chart.yaml": "{apiVersion: v2, name: parent, version: 1.0.0, dependencies: [{name: andante, version: 0.1.0}]}",
    "values.yaml": "andante: {enabled: true, mode: sidecar, intercept: [api.example.com]}",
}


def blocks(first):
    """Blocks of YAML in docs/kubernetes.md that begin with this line."""
    page = (REPOSITORY / "docs" / "kubernetes.md").read_text()
    return [
        block.removeprefix(first) for block in re.findall(r"^```yaml\n(.*?)^```", page, re.S | re.M) if block.startswith(first)
    ]


def taken(sidecar):
    """The pod of docs/kubernetes.md has all parts of the chart's own worker."""
    (template,) = blocks("# templates/pod.yaml\n")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**PARENT, "templates/pod.yaml": template}.items():
            file = Path(folder) / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        (Path(folder) / "charts").mkdir()
        helm.package(CHART, destination=Path(folder) / "charts")
        with helm.Chart.load(folder) as parent:
            files = parent.render(name="andante", namespace="default")
    own = yaml.safe_load(files["parent/templates/pod.yaml"])["spec"]
    (worker,) = pods(sidecar)
    for key in ("initContainers", "volumes"):
        if own[key] != worker[key]:
            return f"{key} differ"
    for key in ("envFrom", "volumeMounts"):
        if own["containers"][0][key] != worker["containers"][0][key]:
            return f"{key} differ"
