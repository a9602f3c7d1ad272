#!/bin/sh
# Usage: with_curl.sh BASE [FLAG…]
set -eu
base=$1
shift
protocols=$(
    curl -fsS "$@" -w '%{http_version}\n' \
        -o 'answer#1' "$base/json?n=[0-4]" -o events "$base/events" -o large "$base/large"
)
for n in 0 1 2 3 4; do
    [ "$(cat "answer$n")" = "{\"n\":\"$n\"}" ]
done
[ "$(grep -c '^data: event ' events)" = 20 ]
[ "$(wc -c <large)" -eq 4194304 ]
curl -fsS "$@" --data-binary @large "$base/upload" | grep -q '"length":"4194304"'
echo "spoke $(echo "$protocols" | sort -u | sed 's,^,HTTP/,')"
