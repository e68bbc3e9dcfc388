#!/bin/sh
# Installs the environment of one image into /opt/starling: `docker/install.sh ingest`. The Dockerfile runs it in its build stage.
set -eu
target="$1"
home="${STARLING_INSTALL_DIR:-/opt/starling}"
wheels="${STARLING_WHEEL_DIR:-/wheels}"
python -m venv --without-pip "$home"
pip --python "$home/bin/python" install --requirement "docker/requirements/$target.txt"
pip --python "$home/bin/python" install --no-deps "$wheels"/starling-*.whl
# The wheel has the sources alone. A compiled module goes beside its source, which Python then leaves aside.
packages="$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
for root in libs/* services/*; do
  (cd "$root" && find . -name '*.so' -exec cp --parents -t "$packages" {} +)
done
"$home/bin/python" -c 'import starling_common.values as module, sys; sys.exit(0 if module.__file__.endswith(".so") else "not compiled")'
