"""The manifests, rendered by kubectl and checked against the schemas of two versions of Kubernetes."""

import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

from tests.support.daemon import binary

FOLDER = pathlib.Path(__file__).resolve().parent
TOOLS = FOLDER.parents[1] / ".venv-tests/bin"
# Every version from the first to the second has the fields that the manifests use.
KUBERNETES = ("1.28", "1.37")
DEPLOYMENTS = {"base": "resources: [base]", "gpu": "resources: [gpu]", "tls": "resources: [base]\ncomponents: [tls]",
               "gpu with tls": "resources: [gpu]\ncomponents: [tls]"}


def setUpModule():
    if not (TOOLS / "kubectl").exists() or not (TOOLS / "kubernetes-validate").exists():
        raise unittest.SkipTest("no kubectl and kubernetes-validate in .venv-tests; run tests/support/setup_venv.sh")


def rendered(deployment):
    """The text of a deployment that uses the manifests as a user's own overlay does."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for path in FOLDER.glob("*/*.yaml"):
            (copy / path.parent.name).mkdir(exist_ok=True)
            (copy / path.parent.name / path.name).write_text(path.read_text())
        (copy / "kustomization.yaml").write_text(DEPLOYMENTS[deployment])
        return subprocess.run([TOOLS / "kubectl", "kustomize", copy], capture_output=True, text=True, check=True).stdout


def objects(deployment):
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(rendered(deployment))}


def pod(item):
    return item["spec"]["template"]["spec"]


class ManifestsTest(unittest.TestCase):
    def setUp(self):
        self.all = {name: objects(name) for name in DEPLOYMENTS}

    def container(self, deployment, kind):
        name = {"StatefulSet": "muster-coordinator", "DaemonSet": "muster-worker"}[kind]
        return pod(self.all[deployment][kind, name])["containers"][0]

    def environment(self, deployment, kind):
        return {entry["name"]: entry.get("value") for entry in self.container(deployment, kind)["env"]}

    def test_match_the_schemas(self):
        for deployment in DEPLOYMENTS:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(rendered(deployment))
                file.flush()
                for version in KUBERNETES:
                    result = subprocess.run([TOOLS / "kubernetes-validate", "--strict", "--kubernetes-version", version,
                                             file.name], capture_output=True, text=True, check=False)
                    self.assertEqual(result.returncode, 0, f"{deployment}, {version}: {result.stdout}{result.stderr}")

    def test_run_without_privileges(self):
        """What the namespace label pod-security.kubernetes.io/enforce=restricted demands, and a read-only root."""
        for deployment, items in self.all.items():
            for key in (("StatefulSet", "muster-coordinator"), ("DaemonSet", "muster-worker")):
                spec = pod(items[key])
                self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                self.assertFalse(spec["automountServiceAccountToken"])
                for container in [*spec.get("initContainers", []), *spec["containers"]]:
                    self.assertEqual(container["securityContext"], {
                        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]}}, f"{deployment}: {container['name']}")
                for volume in spec["volumes"]:
                    self.assertEqual(set(volume) & {"hostPath"}, set())

    def test_programs_know_the_variables(self):
        """Each MUSTER_NAME is a flag --name of the program, or a variable of its own."""
        for kind, program in (("StatefulSet", "coordinator/muster-coordinator"), ("DaemonSet", "worker/muster-worker")):
            text = subprocess.run([binary(program), "--help"], capture_output=True, text=True, check=True).stdout
            for deployment in DEPLOYMENTS:
                for name in self.environment(deployment, kind):
                    if name not in ("HOME", "MUSTER_TOKEN", "MUSTER_TOKEN_DIR"):
                        flag = "--" + name.removeprefix("MUSTER_").lower().replace("_", "-")
                        self.assertRegex(text, rf"{flag}\b", name)

    def test_probes(self):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(self.container("base", "StatefulSet")[probe]["grpc"], {"port": 7070})
            # gRPC probes cannot use TLS.
            self.assertEqual(set(self.container("tls", "StatefulSet")[probe]) & {"grpc", "httpGet"}, {"httpGet"})
        self.assertIn("MUSTER_INSECURE_BIND", self.environment("base", "StatefulSet"))
        for deployment in ("tls", "gpu with tls"):
            self.assertNotIn("MUSTER_INSECURE_BIND", self.environment(deployment, "StatefulSet"))
            self.assertEqual(self.environment(deployment, "DaemonSet")["MUSTER_TLS_CA"], "/tls/ca.crt")

    def test_gpus_are_requested(self):
        self.assertNotIn("nvidia.com/gpu", self.container("base", "DaemonSet")["resources"]["limits"])
        resources = self.container("gpu", "DaemonSet")["resources"]
        self.assertEqual(resources["limits"]["nvidia.com/gpu"], resources["requests"]["nvidia.com/gpu"])
        # One slot per CPU without GPUs; beside GPUs none.
        self.assertIn("MUSTER_SLOTS", self.environment("base", "DaemonSet"))
        self.assertNotIn("MUSTER_SLOTS", self.environment("gpu", "DaemonSet"))

    def test_network_policies_select_the_pods(self):
        for name in ("muster-coordinator", "muster-worker"):
            policy = self.all["base"]["NetworkPolicy", name]
            kind = "StatefulSet" if name == "muster-coordinator" else "DaemonSet"
            labels = self.all["base"][kind, name]["spec"]["template"]["metadata"]["labels"]
            self.assertLessEqual(policy["spec"]["podSelector"]["matchLabels"].items(), labels.items())

    def test_images_are_of_this_version(self):
        version = re.search(r'kSoftwareVersion\[\] = "(.*)"', pathlib.Path("common/version.h").read_text())[1]
        for name, kind in (("coordinator", "StatefulSet"), ("worker", "DaemonSet")):
            self.assertEqual(self.container("base", kind)["image"], f"muster-{name}:{version}")


class DockerfileTest(unittest.TestCase):
    def setUp(self):
        self.text = (FOLDER / "Dockerfile").read_text()

    def test_installs_the_packages(self):
        packages = {path.name.split("_")[0] for path in pathlib.Path("deploy/deb").glob("*.deb")}
        self.assertEqual(set(re.findall(r"/packages/([\w-]+)_\*\.deb", self.text)), packages)

    def test_user_is_that_of_the_manifests(self):
        users = set(re.findall(r"^USER (\d+):\1$", self.text, re.M))
        for item in objects("base").values():
            if item["kind"] in ("StatefulSet", "DaemonSet"):
                self.assertEqual(users, {str(pod(item)["securityContext"]["runAsUser"])})


if __name__ == "__main__":
    unittest.main()
