// Runs the tests of http-cache-tests through a forward proxy, and prints what came of each as JSON.
//
//   node http_cache.mjs PACKAGE PROXY HOST
//
// The suite's own server and checks do the work. Here is only what it has no words for: a client of a forward proxy; and
// that the suite numbers its requests in `Req-Num`. To a cache that keeps apart what differs in any field, each of them
// would be another request, so the number travels in `X-Request-Id`, which names requests and tells none apart.

import http from 'node:http'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [folder, proxy, host] = process.argv.slice(2)
const from = file => import(pathToFileURL(path.join(folder, file)))
const { default: suites } = await from('tests/index.mjs')
const { runTests, getResults } = await from('client/runner.mjs')
const handlers = {
  config: (await from('server/handle-config.mjs')).default,
  test: (await from('server/handle-test.mjs')).default,
  state: (await from('server/handle-state.mjs')).default
}
// The suite's server talks on standard output.
console.log = () => {}

const NUMBER = 'x-request-id'

const server = http.createServer((request, response) => {
  const [, dispatch, ...segments] = new URL(request.url, 'http://localhost').pathname.split('/')
  request.headers['req-num'] = request.headers[NUMBER]
  handlers[dispatch](segments, request, response)
})

// What the suite needs of fetch: a status, fields and a text.
function fetch (url, init = {}) {
  // Some tests share a list of fields, to which the suite adds these for each request: the last ones are ours.
  const last = name => init.headers.findLast(field => field[0] === name)
  const added = ['Test-Name', 'Test-ID', 'Req-Num']
  const headers = (init.headers || [])
    .filter(field => !added.includes(field[0]) || field === last(field[0]))
    .map(([name, value]) => [name === 'Req-Num' ? NUMBER : name, String(value)])
  headers.push(['Host', new URL(url).host])
  if (init.body) headers.push(['Content-Length', String(Buffer.byteLength(init.body))])
  const [hostname, port] = proxy.split(':')
  const options = { hostname, port, path: url, method: init.method || 'GET', setHost: false }
  return new Promise((resolve, reject) => {
    const request = http.request({ ...options, headers: headers.flat() }, answer => {
      const fields = new Headers()
      for (let at = 0; at < answer.rawHeaders.length; at += 2) {
        fields.append(answer.rawHeaders[at], answer.rawHeaders[at + 1])
      }
      const pieces = []
      answer.on('data', piece => pieces.push(piece))
      answer.on('error', reject)
      answer.on('end', () => {
        const body = Buffer.concat(pieces).toString()
        resolve({ status: answer.statusCode, statusText: answer.statusMessage, headers: fields, text: async () => body })
      })
    })
    request.on('error', reject)
    request.end(init.body)
  })
}

await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
const tests = suites.flatMap(suite => suite.tests)
// Those for private caches are called tests of browsers.
for (const test of tests) test.browser_only = false
await runTests(suites, fetch, false, `http://${host}:${server.address().port}`)
const results = getResults()
const told = tests.map(({ id, name, kind = 'required', depends_on: needs = [] }) => {
  const said = results[id]
  return { id, name, kind, needs, wrong: said === true ? null : said.join(': ') }
})
// Only once it is written: a pipe takes its time.
process.stdout.write(JSON.stringify(told), () => process.exit(0))
