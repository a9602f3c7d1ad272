#!/bin/sh
# Usage: with_yarn.sh BASE YARN 1 | YARN 4
set -eu
# Not from a cache of this machine, and however new the package is.
export YARN_CACHE_FOLDER=$PWD/cache YARN_NPM_MINIMAL_AGE_GATE=0 YARN_ENABLE_TELEMETRY=0 YARN_ENABLE_GLOBAL_CACHE=0 YARN_NODE_LINKER=node-modules YARN_UNSAFE_HTTP_WHITELIST='*'
echo '{"name":"test","private":true}' >package.json
case $3 in
1) node "$2" add --registry "$1" --no-lockfile --silent tiny ;;
4) YARN_NPM_REGISTRY_SERVER=$1 node "$2" add tiny ;;
esac
[ "$(node -p "require('tiny')")" = hello ]
echo spoke
