// The bridge: HTTP on 127.0.0.1 alone, for whoever can read a file that only this user can.
//
// It fails closed. A request is refused unless it names this very address (a page that resolves its own name to
// 127.0.0.1 does not), comes from no web page (those send Origin), has the token, and is about a folder that is
// open in this window, or a worktree of a repository that is.

const crypto = require('node:crypto')
const fs = require('node:fs')
const http = require('node:http')
const path = require('node:path')

const VERSION = 1
const MAX_BODY = 32 << 20

class Refused extends Error {
  constructor(status, kind, message) {
    super(message)
    this.status = status
    this.kind = kind
  }
}

class Bridge {
  constructor({ port, file, workspaces, trusted, run, say }) {
    Object.assign(this, { port, file, workspaces, trusted, run, say })
    this.token = crypto.randomBytes(32).toString('hex')
    this.running = new Set()
  }

  async start() {
    this.server = http.createServer((request, response) => {
      this.answer(request, response).catch((error) => this.fail(response, error))
    })
    // A task takes as long as it takes; what has to be sent before it does not.
    this.server.requestTimeout = 60_000
    await new Promise((resolve, reject) => {
      this.server.once('error', (error) => {
        const taken = error.code === 'EADDRINUSE'
        reject(taken ? new Error(`port ${this.port} is taken: by the bridge of another window, perhaps`) : error)
      })
      this.server.listen(this.port, '127.0.0.1', resolve)
    })
    this.host = `127.0.0.1:${this.server.address().port}`
    this.url = `http://${this.host}`
    try {
      this.publish()
    } catch (error) {
      this.server.close()
      throw error
    }
  }

  // Leaves address and token where only this user can read them.
  publish() {
    fs.mkdirSync(path.dirname(this.file), { recursive: true, mode: 0o700 })
    const next = `${this.file}.${process.pid}.${crypto.randomBytes(4).toString('hex')}`
    const content = JSON.stringify({ version: VERSION, url: this.url, token: this.token, pid: process.pid })
    fs.writeFileSync(next, `${content}\n`, { mode: 0o600, flag: 'wx' })
    fs.renameSync(next, this.file)
  }

  async stop() {
    for (const abort of this.running) abort.abort()
    try {
      // Another window may have put its own there meanwhile.
      if (JSON.parse(fs.readFileSync(this.file, 'utf8')).token === this.token) fs.unlinkSync(this.file)
    } catch {
      // It is gone, or not ours.
    }
    this.server?.closeAllConnections?.()
    await new Promise((resolve) => (this.server ? this.server.close(resolve) : resolve()))
  }

  admit(request) {
    if (request.headers.host !== this.host) throw new Refused(403, 'permission', `the request is not for ${this.host}`)
    if (request.headers.origin !== undefined || request.headers['sec-fetch-site'] !== undefined) {
      throw new Refused(403, 'permission', 'requests of web pages are not taken')
    }
    const given = Buffer.from(request.headers.authorization ?? '')
    const wanted = Buffer.from(`Bearer ${this.token}`)
    if (given.length !== wanted.length || !crypto.timingSafeEqual(given, wanted)) {
      throw new Refused(401, 'auth', 'the token is wrong: the window may have been started anew since it was read')
    }
  }

  async answer(request, response) {
    this.admit(request)
    const place = `${request.method} ${request.url}`
    if (place === 'GET /v1/health') return json(response, 200, { version: VERSION, workspaces: this.workspaces() })
    if (place !== 'POST /v1/run') throw new Refused(404, 'usage', `there is nothing at ${place}`)
    const task = check(await body(request))
    if (!this.trusted()) throw new Refused(403, 'permission', 'the window shows a folder that its user does not trust')
    task.workspace = this.place(task.workspace)
    this.say(`task in ${task.workspace}`)

    const abort = new AbortController()
    this.running.add(abort)
    // Whoever asked is gone: nobody waits for the rest.
    response.on('close', () => abort.abort())
    response.writeHead(200, { 'content-type': 'application/x-ndjson' })
    response.flushHeaders()
    const tell = (fact) => void (response.writableEnded || response.write(`${JSON.stringify(fact)}\n`))
    try {
      const text = await this.run(task, tell, abort.signal)
      tell({ fact: 'final', ok: true, text })
    } catch (error) {
      tell({ fact: 'error', class: error.kind ?? 'other', message: String(error.message ?? error) })
      tell({ fact: 'final', ok: false })
    } finally {
      this.running.delete(abort)
      response.end()
    }
  }

  // The folder of a task, resolved; refused unless this window has to do with it.
  place(folder) {
    let real
    try {
      real = fs.realpathSync(folder)
    } catch {
      throw new Refused(409, 'permission', `${folder} is not there`)
    }
    const open = this.workspaces().flatMap((known) => {
      try {
        return [fs.realpathSync(known)]
      } catch {
        return []
      }
    })
    const inside = (root) => real === root || real.startsWith(root + path.sep)
    const repository = commonDir(real)
    if (open.some(inside) || (repository && open.some((root) => commonDir(root) === repository))) return real
    const shown = open.length ? open.join(', ') : 'no folder'
    throw new Refused(409, 'permission', `${real} is not open in VS Code, nor a worktree of what is: the window shows ${shown}`)
  }

  fail(response, error) {
    this.say(`refused: ${error.message}`)
    if (response.headersSent) return response.destroy()
    const refused = error instanceof Refused ? error : new Refused(500, 'other', String(error.message ?? error))
    json(response, refused.status, { error: { class: refused.kind, message: refused.message } })
  }
}

function json(response, status, value) {
  response.writeHead(status, { 'content-type': 'application/json', connection: 'close' })
  response.end(JSON.stringify(value))
}

async function body(request) {
  const pieces = []
  let size = 0
  for await (const piece of request) {
    size += piece.length
    if (size > MAX_BODY) throw new Refused(413, 'usage', 'the task is too large')
    pieces.push(piece)
  }
  try {
    return JSON.parse(Buffer.concat(pieces).toString('utf8'))
  } catch (error) {
    throw new Refused(400, 'usage', `the task is no JSON: ${error.message}`)
  }
}

function check(task) {
  const wrong = (what) => {
    throw new Refused(400, 'usage', `the task ${what}`)
  }
  if (task?.version !== VERSION) wrong(`has version ${task?.version}, and this bridge knows ${VERSION}`)
  if (typeof task.workspace !== 'string' || !path.isAbsolute(task.workspace)) wrong('has no absolute workspace')
  if (typeof task.prompt !== 'string' || !task.prompt.trim()) wrong('has no prompt')
  if (!['read_only', 'workspace_write', 'custom', 'full'].includes(task.permission)) wrong(`has the permission ${task.permission}`)
  if (!Number.isInteger(task.max_turns) || task.max_turns < 1) wrong('has no number of turns')
  if (task.model !== undefined && typeof task.model !== 'string') wrong('has a model that is no name')
  return task
}

// The git directory that all worktrees of a repository share; undefined where there is none.
function commonDir(folder) {
  for (let at = folder; ; at = path.dirname(at)) {
    try {
      const git = path.join(at, '.git')
      if (fs.statSync(git).isDirectory()) return fs.realpathSync(git)
      const named = /^gitdir: (.*)$/m.exec(fs.readFileSync(git, 'utf8'))?.[1]
      const own = fs.realpathSync(path.resolve(at, named))
      let shared
      try {
        shared = fs.readFileSync(path.join(own, 'commondir'), 'utf8').trim()
      } catch {
        return own
      }
      const common = fs.realpathSync(path.resolve(own, shared))
      // A folder can claim to be a worktree of any repository; the repository has to know of it, too.
      const back = fs.realpathSync(fs.readFileSync(path.join(own, 'gitdir'), 'utf8').trim())
      return back === fs.realpathSync(git) && own.startsWith(common + path.sep) ? common : undefined
    } catch {
      if (at === path.dirname(at)) return undefined
    }
  }
}

module.exports = { Bridge, commonDir }
