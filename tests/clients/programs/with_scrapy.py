"""A spider with Scrapy's own settings. Usage: with_scrapy.py BASE"""

import scrapy
from scrapy.crawler import CrawlerProcess
from steps import STEPS, done

seen = []


class Spider(scrapy.Spider):
    name = "test"

    async def start(self):
        for step in STEPS:
            yield scrapy.Request(
                step.url, method=step.method, body=step.body, cb_kwargs={"step": step}, dont_filter=True
            )

    def parse(self, answer, step):
        step.check(answer.status, answer.body)
        seen.append(step)


process = CrawlerProcess({"LOG_LEVEL": "WARNING", "RETRY_ENABLED": False, "TELNETCONSOLE_ENABLED": False})
process.crawl(Spider)
process.start()
if len(seen) != len(STEPS):
    raise SystemExit(f"{len(seen)} of {len(STEPS)} answers were right")
done([])
