"""Values that the checks render, and values that the chart has to refuse."""

# Shapes that deploy/kubernetes does not show.
MORE = {
    "keda": {"store": {"url": "redis://store:6379"}, "autoscaling": {"enabled": True, "source": "keda"}},
    "watched": {
        "monitoring": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "andante"}},
        }
    },
    "open": {"networkPolicy": {"enabled": False}, "gateway": {"state": {"existingClaim": "kept"}}},
    "own secrets": {
        "store": {"urlSecret": "store"},
        "gateway": {"adminTokenSecret": "admin", "replicas": 2},
        "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": [{"name": "registry"}]},
        "extraEnv": [{"name": "ANDANTE_LOG", "value": "debug"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    },
    "placed": {
        "fullnameOverride": "andante",
        "image": {"tag": "1.2.3"},
        "gateway": {
            "state": {"storageClass": "fast"},
            "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
            "podAnnotations": {"a": "1"},
            "podLabels": {"team": "on"},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "priorityClassName": "high",
        },
        "workers": {"label": {"andante": "true"}, "noProxy": "*", "extraEnv": {"PORT": "1"}},
        "networkPolicy": {
            "workers": {"team": "on"},
            "extraEgress": [{"ports": [{"port": 6379}]}],
            "workersExtraEgress": [{"ports": [{"port": 5432}]}],
        },
    },
    "long drain": {
        # The first line is a comment, the last one is in a rule's name: neither is the key.
        "config": "# drain = '9h'\ndrain = \"500ms 3min\"\n[[rule]]\nname = \"drain = '8h'\"\nhost = '*'\nlimits = '1/s'\n",
        "terminationGracePeriodSeconds": 190,
    },
    "sidecar without a worker": {"mode": "sidecar", "extraVolumes": [{"name": "more", "emptyDir": {}}]},
    "sidecar of a program": {
        "mode": "sidecar",
        "image": {"pullSecrets": [{"name": "registry"}]},
        "sidecar": {"worker": {"image": "own", "command": ["python"], "args": ["-c", "on"]}},
    },
}

# Values that the chart has to refuse, and a part of the refusal's text.
REFUSED = [
    ({"gateway": {"replicas": 2}}, "would each use the whole limit"),
    ({"autoscaling": {"enabled": True}}, "would each use the whole limit"),
    ({"store": {"url": "redis://a:6379", "valkey": {"enabled": True}}}, "set one of them"),
    ({"mode": "sidecar", "monitoring": {"serviceMonitor": {"enabled": True}}}, "needs sidecar.metrics"),
    ({"mode": "both"}, "mode"),
    ({"replicas": 3}, "replicas"),
    ({"gateway": {"replica": 3}}, "replica"),
    ({"gateway": {"replicas": "3"}}, "replicas"),
    ({"store": {"url": "redis://:password@store:6379"}}, "url"),
    ({"store": {"url": "http://store"}}, "url"),
    ({"intercept": ["https://api.example.com"]}, "intercept"),
    ({"gateway": {"clients": ["everybody"]}}, "clients"),
    ({"config": ""}, "config"),
    ({"image": {"digest": "0.1.0"}}, "digest"),
    ({"terminationGracePeriodSeconds": 129}, "at least 130"),
    ({"config": 'drain = "1h 2m3s"\n', "terminationGracePeriodSeconds": 3732}, "at least 3733"),
    ({"mode": "sidecar", "config": "drain = '5min' # long\n", "sidecar": {"worker": {"image": "own"}}}, "at least 310"),
]
