#!/bin/sh
# aria2 has no variable for roots. Usage: with_aria2.sh BASE
set -eu
roots=${SSL_CERT_FILE:+--ca-certificate=$SSL_CERT_FILE}
# Word splitting is meant: there may be none.
# shellcheck disable=SC2086
aria2c --quiet --no-conf --force-sequential $roots "$1/large" "$1/events"
[ "$(wc -c <large)" -eq 4194304 ]
[ "$(grep -c '^data: event ' events)" = 20 ]
echo spoke
