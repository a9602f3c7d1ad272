#!/bin/sh
# Usage: with_pip.sh BASE [FLAG…]
set -eu
base=$1
shift
python -m pip download --quiet --no-cache-dir --no-deps --dest . --index-url "$base/simple/" "$@" tiny
python -m zipfile -t tiny-1.0-py3-none-any.whl >tested
echo spoke
