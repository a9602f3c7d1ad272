#!/bin/sh
# HTTP/2 without TLS, by prior knowledge. Usage: with_curl_h2c.sh BASE
# Each time another curl: with a second URL on such a connection curl 7.88 fails, whoever is at the other end.
set -eu
ask() {
    curl -fsS --http2-prior-knowledge -w '%{stderr}%{http_version}\n' "$@" 2>>protocols
}
for n in 0 1 2 3 4; do
    [ "$(ask "$1/json?n=$n")" = "{\"n\":\"$n\"}" ]
done
[ "$(ask "$1/events" | grep -c '^data: event ')" = 20 ]
ask -o large "$1/large"
[ "$(wc -c <large)" -eq 4194304 ]
ask --data-binary @large "$1/upload" | grep -q '"length":"4194304"'
echo "spoke $(sort -u protocols | sed 's,^,HTTP/,')"
