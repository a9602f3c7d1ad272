"""Common configuration of the programs that andante is compared with."""

# Body of the API's answers.
BODY = '{"id":1,"name":"metadata","ok":true,"pad":"' + "0123456789" * 4 + '"}'

# Configuration of HAProxy ahead of its frontends: one thread, and a proxy that counts each host's requests.
HAPROXY_HEAD = """
global
  maxconn 8000
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  option http-keep-alive
  http-reuse always
backend st
  stick-table type string len 64 size 10k expire 10m store http_req_rate(60s)
"""
