#!/usr/bin/env bash
# Installs atheris, which chooses inputs by the code that they reach, where it has a package. Without it the other doors are attacked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
.venv/bin/python -c "import atheris" 2>/dev/null || .venv/bin/pip install --quiet --only-binary :all: --constraint constraints.txt atheris ||
  echo "fuzz: atheris has no package for this system: bodies are chosen by mutation alone" >&2
