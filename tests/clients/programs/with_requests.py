import requests
from steps import STEPS, done

with requests.Session() as session:
    protocols = []
    for step in STEPS:
        answer = session.request(step.method, step.url, data=step.body)
        step.check(answer.status_code, answer.content)
        protocols.append({10: "HTTP/1.0", 11: "HTTP/1.1"}[answer.raw.version])
done(protocols)
