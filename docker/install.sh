#!/bin/sh
# Installs the environment of one image into /opt/starling: `docker/install.sh ingest`. The Dockerfile runs it in its build stage.
# Without the wheel's compiled modules it fails.
set -eu
target="$1"
home="${STARLING_INSTALL_DIR:-/opt/starling}"
wheels="${STARLING_WHEEL_DIR:-/wheels}"
python -m venv --without-pip "$home"
pip --python "$home/bin/python" install --require-hashes --requirement "docker/locks/$target.txt"
pip --python "$home/bin/python" install --no-deps --no-index "$wheels"/starling-*.whl
"$home/bin/python" -c 'import starling_common.values as module, sys; sys.exit(0 if module.__file__.endswith(".so") else "not compiled")'
