// What every client in JavaScript asks for, and what it has to get. The base URL is the program's argument.
export const base = process.argv[2]

const upload = 'upload\n'.repeat(20_000)
const events = Array.from({ length: 20 }, (_, n) => `id: ${n}\ndata: event ${n}\n\n`).join('')

const steps = [0, 1, 2, 3, 4].map((n) => ['GET', `/json?n=${n}`, undefined, `{"n":"${n}"}`])
steps.push(['POST', '/upload', upload, `{"length":"${upload.length}"}`])
steps.push(['GET', '/events', undefined, events])
steps.push(['GET', '/large', undefined, 'andante\n'.repeat(512 * 1024)])

/// `ask(method, url, body)` returns `{ status, text, protocol }`; no protocol if the client does not tell.
export async function walk(ask) {
  const protocols = new Set()
  for (const [method, path, body, expected] of steps) {
    const { status, text, protocol } = await ask(method, base + path, body)
    if (status !== 200 || text !== expected) {
      throw new Error(`${method} ${base + path}: got ${status} ${text.slice(0, 200)}`)
    }
    if (protocol) protocols.add(protocol)
  }
  console.log(['spoke', ...protocols].join(' '))
}
