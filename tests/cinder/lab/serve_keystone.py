"""Keystone by a plain WSGI server.

    serve_keystone.py ADDRESS PORT          with OS_KEYSTONE_CONFIG_DIR and OS_KEYSTONE_CONFIG_FILES set

Ends when the process is gone that started it, and takes the directory LAB_STATE with it then.
"""

import os
import shutil
import sys
import threading
import time

address, port = sys.argv[1:]
# Keystone reads the command line itself.
sys.argv = ["keystone"]

import waitress

from keystone.wsgi.api import application



def end_with(parent):
    while os.getppid() == parent:
        time.sleep(0.5)
    shutil.rmtree(os.environ["LAB_STATE"], ignore_errors=True)
    os._exit(0)


threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
# One at a time: SQLite refuses writes of several.
waitress.serve(application, host=address, port=int(port), threads=1)
