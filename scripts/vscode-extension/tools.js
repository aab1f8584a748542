// The model's tools. Files: inside the task's folder only, whatever links lead out of it.

const { spawn } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')

const MAX_OUTPUT = 64 << 10
const MAX_FILE = 4 << 20
const SHELL_MS = 10 * 60_000

const text = (description) => ({ type: 'string', description })
const schema = (properties) => ({ type: 'object', properties, required: Object.keys(properties) })

const READ = [
  {
    name: 'read_file',
    description: 'Read a text file.',
    inputSchema: schema({ path: text('Path of the file, relative to the folder') }),
    run: (box, { path: file }) => clip(fs.readFileSync(box.inside(file), 'utf8')),
  },
  {
    name: 'list_directory',
    description: 'List a folder; folders end with a slash.',
    inputSchema: schema({ path: text('Path of the folder, relative to the folder; . is the folder itself') }),
    run: (box, { path: folder }) => {
      const entries = fs.readdirSync(box.inside(folder), { withFileTypes: true })
      const names = entries.filter((e) => e.name !== '.git').map((e) => (e.isDirectory() ? `${e.name}/` : e.name))
      return clip(names.sort().join('\n') || 'The folder is empty.')
    },
  },
]

const WRITE = [
  {
    name: 'write_file',
    description: 'Write a whole file; the folders above it are made.',
    inputSchema: schema({ path: text('Path of the file, relative to the folder'), content: text('All of its text') }),
    run: (box, { path: file, content }) => {
      const target = box.inside(file)
      fs.mkdirSync(path.dirname(target), { recursive: true })
      // Once more: a folder above it could have become a link.
      fs.writeFileSync(box.inside(file), content)
      return `Wrote ${Buffer.byteLength(content)} bytes.`
    },
  },
  {
    name: 'edit_file',
    description: 'Replace a text that stands exactly once in a file.',
    inputSchema: schema({ path: text('Path of the file'), old: text('The text to replace'), new: text('What to put in its place') }),
    run: (box, input) => {
      const target = box.inside(input.path)
      const before = fs.readFileSync(target, 'utf8')
      const times = input.old === '' ? 0 : before.split(input.old).length - 1
      if (times !== 1) throw new Error(`the text stands ${times} times in the file, and has to stand there once`)
      fs.writeFileSync(target, before.replace(input.old, () => input.new))
      return 'Replaced.'
    },
  },
]

const SHELL = [
  {
    name: 'run_shell',
    description: 'Run a command by sh in the folder, at most ten minutes.',
    inputSchema: schema({ command: text('The command') }),
    run: shell,
  },
]

// The tools that a task's permission allows.
function toolsFor(task) {
  const writes = task.permission !== 'read_only'
  const offered = [...READ, ...(writes ? WRITE : []), ...(writes && !task.no_shell ? SHELL : [])]
  const root = fs.realpathSync(task.workspace)
  return {
    described: offered.map(({ name, description, inputSchema }) => ({ name, description, inputSchema })),
    async call(name, input, signal) {
      const tool = offered.find((t) => t.name === name)
      if (!tool) return { ok: false, output: `There is no tool ${name}.` }
      const missing = tool.inputSchema.required.find((key) => typeof input?.[key] !== 'string')
      if (missing) return { ok: false, output: `${missing} is missing, or is no text.` }
      try {
        return { ok: true, output: await tool.run({ root, inside: (file) => inside(root, file) }, input, signal) }
      } catch (error) {
        return { ok: false, output: `It failed: ${error.message}` }
      }
    },
  }
}

// A path in the folder, all links followed; an error where it leads out of it, or into the git directory.
function inside(root, file) {
  let there = path.resolve(root, file)
  const rest = []
  for (;;) {
    try {
      there = path.join(fs.realpathSync(there), ...rest)
      break
    } catch (error) {
      // A link without an end would be followed when it is written.
      const link = fs.lstatSync(there, { throwIfNoEntry: false })?.isSymbolicLink()
      if (error.code !== 'ENOENT' || link || there === path.dirname(there)) throw new Error(`${file}: ${error.code ?? error.message}`)
      rest.unshift(path.basename(there))
      there = path.dirname(there)
    }
  }
  const relative = path.relative(root, there)
  if (relative === '..' || relative.startsWith(`..${path.sep}`) || path.isAbsolute(relative)) throw new Error(`${file} is outside of the folder`)
  if (relative.split(path.sep)[0] === '.git') throw new Error(`${file} belongs to git`)
  if (fs.statSync(there, { throwIfNoEntry: false })?.size > MAX_FILE) throw new Error(`${file} is too large`)
  return there
}

function shell(box, { command }, signal) {
  return new Promise((resolve, reject) => {
    // A group of its own, so that all of it ends with it.
    const child = spawn('sh', ['-c', command], { cwd: box.root, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    const take = (piece) => {
      if (output.length < MAX_OUTPUT) output += piece
    }
    child.stdout.on('data', take)
    child.stderr.on('data', take)
    const end = () => {
      try {
        process.kill(-child.pid, 'SIGKILL')
      } catch {
        // Nothing of it is left.
      }
    }
    let late = false
    const timer = setTimeout(() => {
      late = true
      end()
    }, SHELL_MS)
    signal?.addEventListener('abort', end)
    child.on('error', reject)
    child.on('exit', end)
    child.on('close', (code, killed) => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      const how = late ? 'It was ended after ten minutes.' : killed ? `It was ended by ${killed}.` : `Exit code ${code}.`
      resolve(clip(`${how}\n${output}`))
    })
  })
}

function clip(whole) {
  return whole.length > MAX_OUTPUT ? `${whole.slice(0, MAX_OUTPUT)}\n[the rest was cut off]` : whole
}

module.exports = { toolsFor, inside }
