"""libcurl in a program reads the variables for proxies, but none for roots: the program names them."""

import os
from io import BytesIO

import pycurl
from steps import STEPS, done

handle = pycurl.Curl()
if "SSL_CERT_FILE" in os.environ:
    handle.setopt(pycurl.CAINFO, os.environ["SSL_CERT_FILE"])
for step in STEPS:
    answer = BytesIO()
    handle.setopt(pycurl.URL, step.url)
    handle.setopt(pycurl.WRITEDATA, answer)
    handle.setopt(pycurl.HTTPGET, True)
    if step.body is not None:
        handle.setopt(pycurl.POSTFIELDS, step.body)
    handle.perform()
    step.check(handle.getinfo(pycurl.RESPONSE_CODE), answer.getvalue())
done([])
