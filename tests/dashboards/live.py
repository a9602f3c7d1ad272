"""World for the dashboards: APIs, an andante that has trouble with them, two andantes that share a limit by a Redis, workers,
and a Prometheus that scrapes all andantes each second. `World` ends every process that it starts."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import install

ANDANTE = os.environ.get("ANDANTE") or install.REPOSITORY / "target" / "debug" / "andante"
# Time for waits, pauses, retries and time-outs of clients, and for a dozen scrapes.
LOAD_SECONDS = 14
# Time for which the store is stopped: longer than a call may take, shorter than a lease.
STORE_AWAY_SECONDS = 3
SCRAPE_SECONDS = 1
START_SECONDS = 20

# Flags of `andante mock` for each API, and the keys of its rule.
APIS = {
    # Reports the remaining quota, a learned limit. In a window of a second nothing would be left at each scrape.
    "reports": (["--limit", "600/20s", "--dialect", "ietf"], 'coalesce = true\ntrust = "stricter"'),
    # Allows less than the rule says: retries, pauses.
    "refuses": (["--limit", "20/s"], 'limits = ["40/s"]\nin-flight = 10'),
    # Has refusals that reach the workers.
    "blunt": (["--limit", "5/s"], 'limits = ["20/s"]\nretry = "off"'),
    # Has a long queue: refusals of andante's own, clients that leave.
    "slow": (["--latency", "200ms"], 'limits = ["5/s"]\nin-flight = 3\nmax-wait = "2s"'),
    # API of the fleet.
    "shared": ([], 'limits = ["20/s"]'),
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class World:
    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self.apis = {name: free_port() for name in APIS}
        self.andantes = {name: (free_port(), free_port()) for name in ("alone", "first", "second")}
        self.store = free_port()
        self.closed = free_port()
        port = free_port()
        self.prometheus = f"http://127.0.0.1:{port}"

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.end)
            self.start_all()
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.end()

    def start_all(self):
        for name, (options, _) in APIS.items():
            self.start([ANDANTE, "mock", "--listen", f"127.0.0.1:{self.apis[name]}", *options])
        store = ["redis-server", "--port", str(self.store), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.redis = self.start(store)
        self.answers(self.store)
        url = f"redis://127.0.0.1:{self.store}"
        subprocess.run([ANDANTE, "fleet", "init", "--store", url], check=True, stdout=subprocess.DEVNULL)
        for name, (listen, admin) in self.andantes.items():
            file = self.folder / f"{name}.toml"
            rules = [one for one in APIS if (one == "shared") != (name == "alone")]
            file.write_text("".join(self.rule(one) for one in rules))
            options = ["--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"]
            options += ["--state", self.folder / "limits.redb"] if name == "alone" else ["--state", "off", "--store", url]
            self.start([ANDANTE, "serve", "--config", file, *options])
        for _, admin in self.andantes.values():
            self.answers(admin)
        self.start_prometheus()

    def rule(self, name):
        return f'[[rule]]\nname = "{name}"\nhost = "127.0.0.1:{self.apis[name]}"\n{APIS[name][1]}\n'

    def start_prometheus(self):
        targets = ", ".join(f'"127.0.0.1:{admin}"' for _, admin in self.andantes.values())
        rules = self.folder / "alerts.yml"
        shutil.copy(install.REPOSITORY / "deploy" / "alerts.yml", rules)
        (self.folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: {SCRAPE_SECONDS}s, evaluation_interval: 2s}}\n"
            f"rule_files: [{rules}]\n"
            f"scrape_configs: [{{job_name: andante, static_configs: [{{targets: [{targets}]}}]}}]\n"
        )
        port = int(self.prometheus.rsplit(":", 1)[1])
        options = [f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data"]
        self.start(["prometheus", *options, f"--web.listen-address=127.0.0.1:{port}"])
        self.answers(port)

    def start(self, command):
        log = open(self.folder / f"{len(self.processes)}.log", "w")
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def answers(self, port):
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.05)
        raise TimeoutError(f"nothing answers on port {port}: see the logs in {self.folder}")

    def end(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def load(self):
        """Workers ask for LOAD_SECONDS; meanwhile the store is away for a while."""
        until = time.monotonic() + LOAD_SECONDS
        work = [
            ("alone", self.apis["reports"], 6, 9),
            ("alone", self.apis["refuses"], 20, 9),
            ("alone", self.apis["blunt"], 4, 9),
        ]
        work += [("alone", self.apis["slow"], 30, 9), ("alone", self.apis["slow"], 5, 0.7), ("alone", self.closed, 1, 9)]
        work += [("first", self.apis["shared"], 12, 9), ("second", self.apis["shared"], 6, 9)]
        workers = [
            threading.Thread(target=self.worker, args=(andante, api, patience, until), daemon=True)
            for andante, api, number, patience in work
            for _ in range(number)
        ]
        for worker in workers:
            worker.start()
        time.sleep(LOAD_SECONDS / 3)
        self.redis.send_signal(signal.SIGSTOP)
        time.sleep(STORE_AWAY_SECONDS)
        self.redis.send_signal(signal.SIGCONT)
        # The workers go on for a moment: queries see them wait.
        time.sleep(max(0.0, until - time.monotonic()))

    def worker(self, andante, api, patience, until):
        while time.monotonic() < until:
            connection = http.client.HTTPConnection("127.0.0.1", self.andantes[andante][0], timeout=patience)
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", f"http://127.0.0.1:{api}/things")
                answer = connection.getresponse()
                answer.read()
                # A refused worker asks again after a pause.
                time.sleep(0.02 if answer.status < 400 else 0.3)
            connection.close()

    def ask(self, path, **parameters):
        url = f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            return json.load(error)["error"]

    def query(self, expression):
        """A complaint, or None: over the time of the load some series has a value other than 0."""
        for name, value in {
            "$__rate_interval": f"{4 * SCRAPE_SECONDS}s",
            "$__interval": f"{SCRAPE_SECONDS}s",
            "$__range": f"{LOAD_SECONDS}s",
            "$job": ".*",
            "$instance": ".*",
            "$rule": ".*",
        }.items():
            expression = expression.replace(name, value)
        if "$" in expression:
            return f"an unknown variable: {expression}"
        now = time.time()
        data = self.ask("query_range", query=expression, start=now - LOAD_SECONDS, end=now, step=SCRAPE_SECONDS)
        if isinstance(data, str):
            return f"{expression}: {data}"
        values = [float(value) for series in data["result"] for _, value in series["values"]]
        if not values:
            return f"no series: {expression}"
        # NaN is not greater than 0.
        return None if any(value > 0 for value in values) else "only zeros"

    def variable(self, query):
        metric, label = query.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        metric = metric.replace("$job", ".*").replace("$instance", ".*")
        values = self.ask(f"label/{label}/values", **{"match[]": metric})
        return None if isinstance(values, list) and values else f"no values: {query}: {values}"

    def rules(self):
        """A complaint about the rules of deploy/alerts.yml that fail, and about metrics in them that do not exist."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
            if all(rule["health"] != "unknown" for rule in rules):
                break
            time.sleep(0.5)
        found = [f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}" for rule in rules if rule["health"] != "ok"]
        there = set(self.ask("label/__name__/values"))
        used = {name for rule in rules for name in re.findall(r"(?:rule:)?\bandante_\w+(?::\w+)?", rule["query"])}
        return "\n".join([*found, *(f"there is no {name}" for name in used - there)])
