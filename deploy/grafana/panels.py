"""Panels, rows and dashboards of Grafana, as `generate` writes them."""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_PROCESS = 'job=~"$job",instance=~"$instance"'
OF_RULE = OF_PROCESS + ',rule=~"$rule"'
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"


def panel(kind, title, description, width, height, targets, unit="short", options=None, custom=None, **defaults):
    """Panels flow from left to right: place() gives each its position. A target is a query, or a query and a legend."""
    pairs = [
        one if isinstance(one, tuple) else (one, "") for one in ([targets] if isinstance(targets, (str, tuple)) else targets)
    ]
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"w": width, "h": height, "x": 0, "y": 0},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query.replace("{RULE", "{" + OF_RULE).replace("{PROCESS", "{" + OF_PROCESS),
                "legendFormat": legend or "__auto",
                "range": True,
            }
            for number, (query, legend) in enumerate(pairs)
        ],
        "options": options or {},
        "fieldConfig": {"defaults": {"unit": unit, **defaults, "custom": custom or {}}, "overrides": []},
    }


def steps(*pairs):
    """Colours by value: the first holds from the least value on."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in pairs]}


def stat(title, description, query, unit="short", thresholds=None, mappings=None, **defaults):
    options = {
        "graphMode": "area",
        "colorMode": "value",
        "justifyMode": "auto",
        "textMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    more = {"thresholds": thresholds or steps((None, BLUE)), "color": {"mode": "thresholds"}, "mappings": mappings or []}
    return panel("stat", title, description, 4, 4, query, unit, options, **more, **defaults)


def lines(title, description, targets, unit="short", width=12, stacked=False, **defaults):
    options = {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    custom = {"fillOpacity": 30 if stacked else 8, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    return panel("timeseries", title, description, width, 8, targets, unit, options, custom, **{"min": 0, **defaults})


def bars(title, description, target, unit="short", width=12):
    options = {
        "displayMode": "basic",
        "valueMode": "color",
        "namePlacement": "auto",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 30,
        "orientation": "horizontal",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    made = panel("bargauge", title, description, width, 8, target, unit, options, color={"mode": "continuous-BlYlRd"}, min=0)
    # The order of a moment: one point for each series.
    made["targets"][0].update({"instant": True, "range": False})
    return made


def timeline(title, description, target, mappings, width=12):
    options = {
        "showValue": "never",
        "rowHeight": 0.8,
        "mergeValues": True,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    custom = {"lineWidth": 0, "fillOpacity": 80}
    return panel("state-timeline", title, description, width, 8, target, "short", options, custom, mappings=mappings)


def words(**texts):
    """Texts and colours in the place of values: words(_0=("well", GREEN))."""
    options = {key[1:]: {"text": text, "color": color, "index": int(key[1:])} for key, (text, color) in texts.items()}
    return [{"type": "value", "options": options}]


def quantiles(metric, selector):
    by = f"sum by (le) (rate({metric}_bucket{{{selector}}}[$__rate_interval]))"
    return [(f"histogram_quantile({quantile}, {by})", f"{quantile:.0%}") for quantile in (0.5, 0.95, 0.99)]


def place(rows):
    """Rows from top to bottom, panels from left to right in 24 columns."""
    made, y = [], 0
    for title, panels in rows.items():
        made.append(
            {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": 24, "h": 1, "x": 0, "y": y}}
        )
        x, y = 0, y + 1
        for one in panels:
            if x + one["gridPos"]["w"] > 24:
                x, y = 0, y + one["gridPos"]["h"]
            one["gridPos"].update(x=x, y=y)
            x += one["gridPos"]["w"]
            made.append(one)
        y += panels[-1]["gridPos"]["h"]
    return [{"id": number, **one} for number, one in enumerate(made, 1)]


def variable(name, label, query):
    everything = {"text": ["All"], "value": ["$__all"], "selected": True}
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": everything,
    }


def dashboard(name, title, description, rows, other):
    return {
        "uid": f"andante-{name}",
        "title": title,
        "description": description,
        "tags": ["andante"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "schemaVersion": 39,
        "links": [
            {
                "type": "dashboards",
                "title": other,
                "tags": ["andante"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "icon": "external link",
                "tooltip": "",
                "url": "",
                "targetBlank": False,
            }
        ],
        "annotations": {"list": []},
        "templating": {
            "list": [
                {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "refresh": 1},
                variable("job", "Job", "label_values(andante_build_info, job)"),
                variable("instance", "Andante", 'label_values(andante_build_info{job=~"$job"}, instance)'),
                variable("rule", "Rule", 'label_values(andante_waiting{job=~"$job",instance=~"$instance"}, rule)'),
            ]
        },
        "panels": place(rows),
    }
