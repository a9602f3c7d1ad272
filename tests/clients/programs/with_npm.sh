#!/bin/sh
# Usage: with_npm.sh BASE [FLAG…]
set -eu
base=$1
shift
npm install --no-audit --no-fund --no-update-notifier --registry "$base/" "$@" tiny
[ "$(node -p "require('tiny')")" = hello ]
echo spoke
