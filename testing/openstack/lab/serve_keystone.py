"""Keystone by a plain WSGI server.

    serve_keystone.py ADDRESS PORT          with OS_KEYSTONE_CONFIG_DIR and OS_KEYSTONE_CONFIG_FILES set
"""

import sys

address, port = sys.argv[1:]
# Keystone reads the command line itself.
sys.argv = ["keystone"]

import waitress

from keystone.wsgi.api import application

# One request at a time: SQLite refuses writes of several.
waitress.serve(application, host=address, port=int(port), threads=1)
