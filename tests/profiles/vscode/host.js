// A window that is none: loads the real extension with a `vscode` module whose model does what the prompt says.
// Usage: node host.js FOLDER...   It ends when its standard input does.

const Module = require('node:module')
const path = require('node:path')

class LanguageModelTextPart {
  constructor(value) {
    this.value = value
  }
}
class LanguageModelToolCallPart {
  constructor(callId, name, input) {
    Object.assign(this, { callId, name, input })
  }
}
class LanguageModelToolResultPart {
  constructor(callId, content) {
    Object.assign(this, { callId, content })
  }
}
class CancellationTokenSource {
  constructor() {
    this.token = { isCancellationRequested: false }
  }
  cancel() {
    this.token.isCancellationRequested = true
  }
  dispose() {}
}

// Calls the tool that the prompt's last order names; says DONE after its result.
async function* stream(messages, tools) {
  const [first] = messages
  const prompt = first.content.map((part) => part.value ?? '').join('')
  const names = tools.map((tool) => tool.name)
  const result = messages.length > 1 && messages.at(-1).content[0]
  if (result instanceof LanguageModelToolResultPart) {
    yield new LanguageModelTextPart(`DONE: ${result.content[0].value}`)
    return
  }
  const order = [...prompt.matchAll(/\[\[(WRITE|RUN) (.*?)\]\]/g)].at(-1)
  const [name, input] =
    order?.[1] === 'RUN' ? ['run_shell', { command: order[2] }] : ['write_file', { path: order?.[2] ?? 'out.txt', content: 'hello\n' }]
  if (process.env.HOST_FAILS) throw Object.assign(new Error(process.env.HOST_FAILS), { code: process.env.HOST_CODE })
  if (names.includes(name)) yield new LanguageModelToolCallPart('call_1', name, input)
  else yield new LanguageModelTextPart(`No tool fits: ${names.join(', ')}`)
}

const message = (role) => (content) => ({
  role,
  content: typeof content === 'string' ? [new LanguageModelTextPart(content)] : content,
})
const model = {
  id: 'stub-large',
  family: 'stub',
  sendRequest: async (messages, options) => ({ stream: stream(messages, options.tools) }),
}
const vscode = {
  version: '1.95.0-host',
  LanguageModelTextPart,
  LanguageModelToolCallPart,
  LanguageModelToolResultPart,
  LanguageModelChatMessage: { User: message('user'), Assistant: message('assistant') },
  CancellationTokenSource,
  commands: { registerCommand: () => ({ dispose() {} }) },
  lm: { selectChatModels: async () => (process.env.HOST_NO_MODEL ? [] : [model]) },
  window: {
    createOutputChannel: () => ({ appendLine: (line) => process.stderr.write(`${line}\n`), dispose() {} }),
    showWarningMessage: (text) => process.stderr.write(`${text}\n`),
    showInformationMessage() {},
  },
  workspace: {
    isTrusted: true,
    workspaceFolders: process.argv.slice(2).map((folder) => ({ uri: { scheme: 'file', fsPath: folder } })),
    getConfiguration: () => ({ get: (key, otherwise) => (key === 'port' ? 0 : otherwise) }),
  },
}
const load = Module._load
Module._load = (request, ...rest) => (request === 'vscode' ? vscode : load(request, ...rest))

const extension = require(path.join(__dirname, '../../../scripts/vscode-extension/extension.js'))
extension.activate({ subscriptions: [] }).then(() => process.stdout.write('ready\n'))
process.stdin.resume()
process.stdin.on('end', () => extension.deactivate().then(() => process.exit(0)))
