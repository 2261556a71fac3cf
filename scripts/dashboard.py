#!/usr/bin/env python3
"""Checks the dashboard of Grafana with the data of a real run, and draws its panels.

A Prometheus scrapes the orchestrator of a cluster while claims are bound, fail and are deleted. Each expression of each
panel is evaluated. A panel that must have data and has none is an error. Grafana is not needed: this script draws the
panels as SVG in one page, and a browser makes a picture of it.

    dashboard.py PROMETHEUS [--picture FILE.png] [--seconds 90]

PROMETHEUS is the program. KUBECONFIG names the cluster, which has an orchestrator; PATH has kubectl, and chromium for the
picture.
"""

import argparse
import base64
import html
import json
import math
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

DASHBOARD = Path(__file__).resolve().parent.parent / "deploy/dashboards/flex-provisioner.json"
NAMESPACE = "flex-provisioner"
ADDRESS = "127.0.0.1:19091"
SCRAPE = 2
# The sections in the picture. All are checked; a picture of all would be too large for a page.
PICTURED = ("State", "Claims", "Volumes")
# Panels that may lack data, with the reason.
OPTIONAL = {
    "Changes of attributes per minute": "no claim of the run has a VolumeAttributesClass",
    "Size of batches": "no class of the run has batches",
    "Repeated steps per second": "a run without conflicts repeats no step",
    "Orphans removed, and findings": "the first sweep may come later",
    "Findings": "the first sweep may come later",
    "Restarts of watches per minute": "no watch breaks",
}
VARIABLES = {"$orchestrator": ".+", "$class": ".*", "$__rate_interval": "20s", "$__range": "10m"}
COLOURS = ["#3274d9", "#56a64b", "#e0752d", "#a352cc", "#e02f44", "#0f9d9d", "#c4a000", "#7c7c7c", "#8ab8ff", "#73bf69"]

CONFIGS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: gold}
provisioner: flex-provisioner.io
allowVolumeExpansion: true
---
apiVersion: v1
kind: ConfigMap
metadata: {name: gold, namespace: flex-provisioner, labels: {type: provisioner-config, storage-class: gold}}
data:
  plugin-name: kubernetes.io/flex-provisioner
  service-account-name: flex-provisioner-shell
  volume-sources: nfs
  placement: any
  capabilities: expand
  backoff: 2s
  script: |
    case $OPERATION in
    provision)
        sleep 0.$((ATTEMPT * 3))
        case $PVC_NAME in *3 | *8) [ "$ATTEMPT" -gt 1 ] || exec flex-pv fail later "the array is busy" ;; esac
        exec flex-pv create --nfs "nas.example:/exports/$CLAIM_UUID"
        ;;
    delete) case $PVC_NAME in *5) [ "$ATTEMPT" -gt 1 ] || exit 75 ;; esac ;;
    esac
---
apiVersion: v1
kind: ConfigMap
metadata: {name: pooled, namespace: flex-provisioner, labels: {type: provisioner-config, storage-class: pooled}}
data:
  plugin-name: kubernetes.io/flex-provisioner
  service-account-name: flex-provisioner-shell
  volume-sources: nfs
  placement: any
  capabilities: pool
  pool: 1Gi=2
  script: |
    [ "$OPERATION" != provision ] || exec flex-pv create --nfs "nas.example:/exports/$CLAIM_UUID"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: refused, namespace: flex-provisioner, labels: {type: provisioner-config, storage-class: refused}}
data: {plugin-name: kubernetes.io/flex-provisioner, timeout: soon}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, namespace: dashboard}}
spec: {{storageClassName: {storage}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}
---
"""


def kubectl(*arguments, text=None, check=True):
    done = subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        sys.exit(f"dashboard: kubectl {' '.join(arguments)} fails: {done.stderr}")
    return done.stdout


def scrape_config(folder):
    """Writes the configuration of Prometheus. It reaches the pods through the API server."""
    view = json.loads(kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    cluster, user = view["clusters"][0]["cluster"], view["users"][0]["user"]
    files = {
        "ca": cluster["certificate-authority-data"],
        "cert": user["client-certificate-data"],
        "key": user["client-key-data"],
    }
    for name, data in files.items():
        Path(folder, name).write_bytes(base64.b64decode(data))
    pods = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/name=flex-provisioner", "-o", "json"))
    server = urllib.parse.urlparse(cluster["server"])
    jobs = [
        {
            "job_name": pod["metadata"]["name"],
            "scrape_interval": f"{SCRAPE}s",
            "scrape_timeout": f"{SCRAPE}s",
            "scheme": server.scheme,
            "metrics_path": f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:8080/proxy/metrics",
            "tls_config": {"ca_file": f"{folder}/ca", "cert_file": f"{folder}/cert", "key_file": f"{folder}/key"},
            "static_configs": [{"targets": [server.netloc]}],
        }
        for pod in pods["items"]
    ]
    # JSON is YAML, too.
    Path(folder, "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))


def asked(path, **query):
    """Asks Prometheus. Returns the series that it answers."""
    url = f"http://{ADDRESS}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def wait_for_scrape():
    for _ in range(60):
        try:
            if asked("query", query="flex_leader == 1"):
                return
        except OSError:
            pass
        time.sleep(1)
    sys.exit("dashboard: Prometheus has no metrics of an orchestrator that leads: see its log above")


def live(seconds):
    """Lets claims be bound, fail, grow and be deleted."""
    kubectl("create", "namespace", "dashboard", check=False)
    kubectl("apply", "-f", "configmaps/hostpath.yaml", "-f", "examples/hostpath/storageclass.yaml")
    kubectl("apply", "-f", "-", text=CONFIGS)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        claims = [("gold", f"data-{number}"), ("pooled", f"cache-{number}")]
        text = "".join(CLAIM.format(name=name, storage=storage, size="1Gi") for storage, name in claims)
        kubectl("apply", "-f", "-", text=text)
        if number % 4 == 2:
            larger = '{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}'
            kubectl("-n", "dashboard", "patch", "pvc", f"data-{number - 2}", "-p", larger, check=False)
        if number >= 8:
            old = [f"pvc/{name}-{number - 8}" for name in ("data", "cache")]
            kubectl("-n", "dashboard", "delete", "--wait=false", "--ignore-not-found", *old)
        number += 1
        time.sleep(2)


def clean_up():
    kubectl("-n", "dashboard", "delete", "pvc", "--all", "--wait=false", check=False)
    for _ in range(60):
        volumes = kubectl("get", "pv", "-o", "jsonpath={range .items[*]}{.spec.storageClassName} {end}").split()
        if "gold" not in volumes:
            break
        time.sleep(1)
    kubectl("delete", "--ignore-not-found", "-f", "-", text=CONFIGS, check=False)
    kubectl("delete", "namespace", "dashboard", "--wait=false", check=False)


def evaluated(panel, begin, end):
    """Returns the series of a panel, each with its name and its points."""
    found = []
    for target in panel.get("targets", []):
        expression = target["expr"]
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        series = asked("query_range", query=expression, start=begin, end=end, step=SCRAPE)
        for one in series:
            points = [(float(at), float(value)) for at, value in one["values"] if not math.isnan(float(value))]
            labels = {key: value for key, value in one["metric"].items() if key not in ("__name__", "instance", "job")}
            legend = target.get("legendFormat") or ""
            for key, value in labels.items():
                legend = legend.replace("{{" + key + "}}", value).replace("{{ " + key + " }}", value)
            name = legend if legend and "{{" not in legend and legend != "__auto" else ", ".join(labels.values())
            if points:
                found.append((name or expression.split("(")[0], points))
    return found


def short(value):
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def chart(panel, series, begin, end):
    """Draws a panel as SVG."""
    width, height, left, top, bottom = 300, 70 if panel["type"] == "stat" else 150, 42, 26, 34
    title = f'<text x="8" y="17" class="title">{html.escape(panel["title"])}</text>'
    if panel["type"] in ("stat", "table"):
        lines = [f"{name}: {short(points[-1][1])}" if panel["type"] == "table" else short(points[-1][1]) for name, points in series]
        size = "value" if panel["type"] == "stat" else "row"
        rows = "".join(
            f'<text x="14" y="{54 if size == "value" else 44 + number * 18}" class="{size}">{html.escape(line[:44])}</text>'
            for number, line in enumerate(lines[:6])
        )
        return f'<svg width="{width}" height="{height}"><rect width="{width}" height="{height}" class="panel"/>{title}{rows}</svg>'
    highest = max((value for _, points in series for _, value in points), default=0) or 1
    across = lambda at: left + (at - begin) / (end - begin) * (width - left - 12)
    up = lambda value: height - bottom - max(value, 0) / highest * (height - top - bottom)
    grid = "".join(
        f'<line x1="{left}" x2="{width - 12}" y1="{up(highest * part):.0f}" y2="{up(highest * part):.0f}" class="grid"/>'
        f'<text x="{left - 5}" y="{up(highest * part) + 4:.0f}" class="axis">{short(highest * part)}</text>'
        for part in (0, 0.5, 1)
    )
    lines, legend, place = "", "", left
    for number, (name, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(at):.0f},{up(value):.1f}" for at, value in points)
        lines += f'<polyline points="{path}" stroke="{colour}"/>'
        text = name[:24]
        if place + 6 * len(text) < width and number < 6:
            legend += f'<circle cx="{place}" cy="{height - 12}" r="3" fill="{colour}"/>'
            legend += f'<text x="{place + 8}" y="{height - 8}" class="legend">{html.escape(text)}</text>'
            place += 6 * len(text) + 20
    empty = "" if series else f'<text x="{width / 2}" y="{height / 2}" class="none">no data in this run</text>'
    return (
        f'<svg width="{width}" height="{height}"><rect width="{width}" height="{height}" class="panel"/>'
        f"{title}{grid}{lines}{legend}{empty}</svg>"
    )


STYLE = """
body { margin: 0; padding: 8px; width: 930px; background: #f4f5f5; font: 11px "DejaVu Sans", sans-serif }
h2 { font-size: 14px; margin: 8px 4px 3px } svg { margin: 3px; display: inline-block; vertical-align: top }
.panel { fill: #fff; stroke: #d8dadb } .title { font-weight: bold; font-size: 11px } .value { font-size: 24px; fill: #2f7d32 }
.row, .legend { font-size: 10px; fill: #444 } .axis { font-size: 9px; fill: #666; text-anchor: end }
.none { font-size: 11px; fill: #888; text-anchor: middle } .grid { stroke: #e8e8e8 }
polyline { fill: none; stroke-width: 1.5 }
"""


def drawn(panels, begin, end):
    """Returns the page with the panels of the pictured sections, each section with its heading."""
    parts, section = [], ""
    for panel, series in panels:
        section = panel["title"] if panel["type"] == "row" else section
        if section not in PICTURED:
            continue
        parts.append(f"<h2>{html.escape(panel['title'])}</h2>" if panel["type"] == "row" else chart(panel, series, begin, end))
    return f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style><body>{"".join(parts)}</body>'


def photograph(page, picture, folder):
    """Makes a picture of a page by a browser."""
    file = Path(folder, "page.html")
    file.write_text(page)
    height = 24
    for section in page.split("<h2>")[1:]:
        shown = section.count("<svg")
        lower = section.count('<svg width="300" height="70"')
        height += 32 + -(-lower // 3) * 76 + -(-(shown - lower) // 3) * 156
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-lcd-text"]
    command += [f"--window-size=946,{height}", f"--screenshot={picture}", f"--user-data-dir={folder}/browser", f"file://{file}"]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)


def flattened(panels):
    """Returns all panels, also those inside of sections that are closed."""
    for panel in panels:
        yield panel
        yield from flattened(panel.get("panels", []))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("prometheus")
    arguments.add_argument("--picture")
    arguments.add_argument("--seconds", type=int, default=90)
    flags = arguments.parse_args()
    panels = list(flattened(json.loads(DASHBOARD.read_text())["panels"]))
    with tempfile.TemporaryDirectory() as folder:
        scrape_config(folder)
        command = [flags.prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        command += [f"--web.listen-address={ADDRESS}", "--log.level=warn"]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        try:
            wait_for_scrape()
            begin = time.time()
            live(flags.seconds)
            end = time.time()
            results = [(panel, evaluated(panel, begin, end)) for panel in panels]
        finally:
            server.terminate()
            server.wait()
            clean_up()
        page = drawn(results, begin, end)
        if flags.picture:
            photograph(page, flags.picture, folder)
    missing = [panel["title"] for panel, series in results if panel["type"] != "row" and not series]
    for title in missing:
        print(f"no data: {title}" + (f" ({OPTIONAL[title]})" if title in OPTIONAL else ""))
    wrong = [title for title in missing if title not in OPTIONAL]
    shown = sum(panel["type"] != "row" for panel, _ in results)
    print(f"{shown} panels, {len(missing)} without data, {len(wrong)} of them must have data")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
