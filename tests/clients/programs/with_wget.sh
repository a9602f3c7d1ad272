#!/bin/sh
# Usage: with_wget.sh BASE
set -eu
wget -q -O answers "$1/json?n=0" "$1/json?n=1" "$1/json?n=2"
[ "$(cat answers)" = '{"n":"0"}{"n":"1"}{"n":"2"}' ]
wget -q -O large "$1/large"
[ "$(wc -c <large)" -eq 4194304 ]
echo "spoke HTTP/1.1"
