from urllib.request import getproxies

import urllib3
from steps import BASE, STEPS, done

# urllib3 itself reads no variables: the program does.
proxy = getproxies().get(BASE.split(":")[0])
with urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager() as pool:
    protocols = []
    for step in STEPS:
        answer = pool.request(step.method, step.url, body=step.body)
        step.check(answer.status, answer.data)
        protocols.append(answer.version_string)
done(protocols)
