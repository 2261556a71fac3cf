#!/usr/bin/env python3
"""Directories of a node as volumes, with flexpv.py beside it."""
import os
import flexpv

BASE = os.environ.get("BASE_PATH") or "/srv/volumes"
os.umask(0)

def provision(run):
    os.makedirs(f"{BASE}/{run.id}", 0o777, exist_ok=True)
    run.create({"local": {"path": f"{BASE}/{run.id}"}}, on_this_node=True)

flexpv.main(["base-path"], provision=provision, delete=lambda run: flexpv.remove(f"{BASE}/{run.id}"))
