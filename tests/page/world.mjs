// andante and its API as the tests of the page have them, and what they say of what they see.
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import http2 from 'node:http2'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

export const TOKEN = 'the token of the test of the page'.replaceAll(' ', '-')
/** Requests that one connection carries at once. */
const STREAMS = 100

const installed = createRequire(`${process.env.INSTALLED}/`)
export const { chromium } = installed('playwright-core')
const axe = readFileSync(installed.resolve('axe-core/axe.min.js'), 'utf8')
const pictures = process.argv.includes('--pictures')

export const result = { passed: 0, failed: 0 }

export function holds(claim, fact, seen) {
  fact ? result.passed++ : result.failed++
  console.log(`${fact ? 'ok      ' : 'FAILED  '}${claim}${fact || seen === undefined ? '' : `: ${JSON.stringify(seen)}`}`)
}

export const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** Waits until `fact` is true, and says whether it came to be. */
export async function until(fact, ms = 10_000) {
  for (const end = performance.now() + ms; performance.now() < end; await later(50)) {
    const value = await fact()
    if (value) return value
  }
  return false
}

/** An API that answers everything, but asks for a pause of so many seconds when `/pause` is asked for the first time. */
export async function api(seconds = 20) {
  const asked = new Set()
  const server = http.createServer((request, response) => {
    const pause = request.url.includes('/pause') && !asked.has(request.url)
    asked.add(request.url)
    response.writeHead(pause ? 429 : 200, pause ? { 'retry-after': seconds } : {})
    response.end()
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { server, port: server.address().port }
}

/** andante with these limits of hosts, all of which are this machine, once it is ready; `keys` begin its file. */
export async function proxy(limits, keys = '') {
  const folder = mkdtempSync(join(tmpdir(), 'andante-page-'))
  const rule = ([host, limits]) => `[[rule]]\nhost = '${host}'\nlimits = ${JSON.stringify(limits)}\nresolve = '127.0.0.1'\n`
  writeFileSync(join(folder, 'token'), TOKEN)
  writeFileSync(join(folder, 'andante.toml'), keys + Object.entries(limits).map(rule).join('\n'))
  const args = ['serve', '--config', join(folder, 'andante.toml'), '--admin-token', join(folder, 'token'), '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--state', 'off']
  const child = spawn(process.env.ANDANTE, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  const lines = createInterface({ input: child.stdout })
  let said = ''
  child.stderr.on('data', (text) => (said = (said + text).slice(-2000)))
  for await (const line of lines) {
    const found = line.match(/listening on (\S+?),.* admin on (\S+)/)
    if (found) return { child, folder, listen: found[1], admin: found[2] }
  }
  throw new Error(`andante has not started: ${said}`)
}

/** Sends `count` GETs to `host` through `listen`, many over one connection. Returns how many are answered so far. */
export function ask(listen, host, path, count) {
  const progress = { answered: 0, sessions: [] }
  for (let left = count; left > 0; left -= STREAMS) {
    const session = http2.connect(listen)
    session.on('error', () => {})
    progress.sessions.push(session)
    for (let n = 0; n < Math.min(left, STREAMS); n++) {
      const stream = session.request({ ':method': 'GET', ':scheme': 'http', ':authority': host, ':path': path })
      stream.on('response', () => progress.answered++)
      stream.on('error', () => {})
      stream.resume()
    }
  }
  return progress
}

export const seconds = (text) => {
  const [, minutes, rest] = text.match(/(?:(\d+) min )?([\d.]+) s/) ?? []
  return rest === undefined ? NaN : Number(minutes ?? 0) * 60 + Number(rest)
}
export const count = (text) => Number((text ?? '').replaceAll(',', ''))

/** The texts of what is there at this moment: nothing is waited for. */
export const texts = (locator) => locator.evaluateAll((found) => found.map((one) => one.checkVisibility() ? one.textContent : ''))
export const says = async (locator, text) => (await texts(locator)).some((said) => said.includes(text))

/** What the page says of itself: problems of accessibility, and whether it is wider than the screen. */
export async function examine(page, what) {
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => globalThis.axe.run(document))
  const said = violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 120)}`)
  holds(`axe-core finds nothing on ${what}`, !said.length, said)
  const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth])
  holds(`${what} is as wide as the screen`, wide[0] <= wide[1], wide)
}

export async function picture(page, name) {
  if (pictures) await page.screenshot({ path: `docs/page-${name}.png` })
}

/** The whole page in both themes, as files in the folder $PICTURES, for somebody to look at. */
export async function look(page, name) {
  if (!process.env.PICTURES) return
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme })
    await page.screenshot({ path: join(process.env.PICTURES, `${name}-${colorScheme}.png`), fullPage: true })
  }
  await page.emulateMedia({ colorScheme: 'light' })
}

/** A browser's page that notes complaints of the console, and requests to anywhere else. */
export async function opened(browser, admin) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 640 } })
  const page = await context.newPage()
  const [complaints, elsewhere] = [[], []]
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && complaints.push(message.text()))
  page.on('pageerror', (error) => complaints.push(String(error)))
  page.on('request', (request) => request.url().startsWith(admin) || elsewhere.push(request.url()))
  await page.goto(admin)
  return { page, complaints, elsewhere }
}

