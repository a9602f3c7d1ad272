import httplib2
from steps import STEPS, done

http = httplib2.Http()
for step in STEPS:
    answer, text = http.request(step.url, step.method, body=step.body)
    step.check(answer.status, text)
done(["HTTP/1.1"])
