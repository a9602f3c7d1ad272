import http from 'node:http'
import https from 'node:https'
import { text } from 'node:stream/consumers'
import { walk } from './steps.mjs'

await walk(
  (method, url, body) =>
    new Promise((resolve, reject) => {
      const headers = body ? { 'content-length': body.length } : {}
      const { request } = url.startsWith('https:') ? https : http
      const asked = request(url, { method, headers }, async (answer) => {
        resolve({ status: answer.statusCode, text: await text(answer), protocol: `HTTP/${answer.httpVersion}` })
      })
      asked.on('error', reject)
      asked.end(body)
    }),
)
