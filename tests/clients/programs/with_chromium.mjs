// Chromium finds the proxy in the variables, but trusts its own store of certificates, and the user's. So what
// NODE_EXTRA_CA_CERTS names, and the system does not know, goes into that. Usage: with_chromium.mjs BASE
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { base, walk } from './steps.mjs'

const { chromium } = createRequire(process.env.MORE_NODE_CLIENTS)('playwright-core')
const store = `${process.env.HOME}/.pki/nssdb`
const system = '/etc/ssl/certs/ca-certificates.crt'

const pems = (file) => readFileSync(file, 'utf8').match(/-----BEGIN CERT[^]+?-----END CERTIFICATE-----/g) ?? []
const plain = (pem) => pem.replace(/\s/g, '')
const certutil = (...more) => execFileSync('certutil', ['-d', `sql:${store}`, ...more])

if (process.env.NODE_EXTRA_CA_CERTS) {
  const known = new Set(existsSync(system) ? pems(system).map(plain) : [])
  mkdirSync(store, { recursive: true })
  certutil('-N', '--empty-password')
  const added = pems(process.env.NODE_EXTRA_CA_CERTS).filter((pem) => !known.has(plain(pem)))
  added.forEach((pem, n) => {
    writeFileSync('added.pem', pem)
    certutil('-A', '-t', 'C,,', '-n', `andante ${n}`, '-i', 'added.pem')
  })
}

// The browser's own errands are no part of the test.
const env = { ...process.env, no_proxy: '.google.com,.googleapis.com' }
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'], env })
const page = await browser.newPage()
await page.goto(`${base}/page`)
await walk((method, url, body) =>
  page.evaluate(
    async ([method, url, body]) => {
      const answer = await fetch(url, { method, body, cache: 'no-store' })
      return { status: answer.status, text: await answer.text() }
    },
    [method, url, body],
  ),
)
await browser.close()
