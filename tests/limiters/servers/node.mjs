// A server behind a limiter of npm. Usage: node node.mjs KIND OPTIONS ADDRESS PORT; OPTIONS is JSON, as the limiter's
// own documentation has it but for the few words that are explained here.
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import process from 'node:process'

const [kind, json, address, port] = process.argv.slice(2)
// The packages are not beside this file.
const bring = createRequire(`${process.env.LIMITERS_NODE}/`)
const done = { done: true }

const kinds = {
  // Each limiter may have `method` and `path` of the requests that it counts, and `keys`: limits by API key.
  express({ limiters }) {
    const app = bring('express')()
    for (const { method = 'use', path = '/', keys, ...options } of limiters) {
      const byKey = keys && {
        limit: (request) => keys[request.get('x-api-key')],
        keyGenerator: (request) => request.get('x-api-key'),
      }
      app[method](path, bring('express-rate-limit').rateLimit({ ...options, ...byKey }))
    }
    app.use((_, response) => response.json(done))
    return createServer(app)
  },

  async fastify(options) {
    const app = bring('fastify')()
    await app.register(bring('@fastify/rate-limit'), options)
    app.get('/items', async () => done)
    await app.ready()
    return app.server
  },

  koa(options) {
    const app = new (bring('koa'))()
    app.use(bring('koa-ratelimit')({ driver: 'memory', db: new Map(), ...options }))
    app.use((context) => {
      context.body = done
    })
    return createServer(app.callback())
  },

  // As the limiter's documentation shows it for an HTTP server.
  flexible(options) {
    const limiter = new (bring('rate-limiter-flexible').RateLimiterMemory)(options)
    return createServer(async (request, response) => {
      const { refused, state } = await limiter.consume(request.socket.remoteAddress).then(
        (state) => ({ refused: false, state }),
        (state) => ({ refused: true, state }),
      )
      response.writeHead(refused ? 429 : 200, {
        'Retry-After': state.msBeforeNext / 1000,
        'X-RateLimit-Limit': options.points,
        'X-RateLimit-Remaining': state.remainingPoints,
        'X-RateLimit-Reset': Math.ceil((Date.now() + state.msBeforeNext) / 1000),
      })
      response.end(JSON.stringify(done))
    })
  },

  // A scheduler of jobs that queues none: what it drops is refused, as an overloaded server refuses it. `work` is how long a
  // request takes, in milliseconds.
  bottleneck({ work, ...options }) {
    const Bottleneck = bring('bottleneck')
    const limiter = new Bottleneck({ highWater: 0, strategy: Bottleneck.strategy.OVERFLOW, ...options })
    return createServer(async (_, response) => {
      const served = await limiter.schedule(() => new Promise((end) => setTimeout(end, work, true))).catch(() => false)
      response.writeHead(served ? 200 : 503)
      response.end(JSON.stringify(done))
    })
  },

  hono(options) {
    const app = new (bring('hono').Hono)()
    app.use(bring('hono-rate-limiter').rateLimiter({ keyGenerator: () => 'all', ...options }))
    app.get('/items', (context) => context.json(done))
    return createServer(bring('@hono/node-server').getRequestListener(app.fetch))
  },

  async hapi(options) {
    const app = bring('@hapi/hapi').server({ autoListen: false })
    await app.register({ plugin: bring('hapi-rate-limit'), options })
    app.route({ method: 'GET', path: '/items', handler: () => done })
    await app.start()
    return app.listener
  },

  async nest(throttlers) {
    bring('reflect-metadata')
    const { Controller, Get, Module } = bring('@nestjs/common')
    const { APP_GUARD, NestFactory } = bring('@nestjs/core')
    const { ThrottlerGuard, ThrottlerModule } = bring('@nestjs/throttler')
    class Items {
      items() {
        return done
      }
    }
    Get('items')(Items.prototype, 'items', Object.getOwnPropertyDescriptor(Items.prototype, 'items'))
    Controller()(Items)
    class Api {}
    Module({
      imports: [ThrottlerModule.forRoot(throttlers)],
      controllers: [Items],
      providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
    })(Api)
    const app = await NestFactory.create(Api, { logger: ['error'] })
    await app.init()
    return app.getHttpServer()
  },
}

const server = await kinds[kind](JSON.parse(json))
server.keepAliveTimeout = 75_000
server.listen(Number(port), address)
