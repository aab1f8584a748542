// The extension: starts the bridge in this window, and says where it is.

const path = require('node:path')
const os = require('node:os')
const vscode = require('vscode')
const { Bridge } = require('./bridge')
const { work, chooseModel } = require('./agent')

let bridge

async function activate(context) {
  const settings = () => vscode.workspace.getConfiguration('workspool.bridge')
  const log = vscode.window.createOutputChannel('workspool bridge')
  const say = (text) => log.appendLine(`${new Date().toISOString()} ${text}`)

  async function start() {
    if (bridge) return
    const made = new Bridge({
      port: settings().get('port', 9394),
      file: bridgeFile(process.env),
      workspaces: () => (vscode.workspace.workspaceFolders ?? []).map((f) => f.uri).filter((u) => u.scheme === 'file').map((u) => u.fsPath),
      trusted: () => vscode.workspace.isTrusted,
      run: (task, tell, signal) => work(vscode, { ...task, model: task.model ?? (settings().get('model', '') || undefined) }, tell, signal),
      say,
    })
    try {
      await made.start()
      bridge = made
      say(`listening at ${made.url}`)
    } catch (error) {
      say(`not started: ${error.message}`)
      vscode.window.showWarningMessage(`workspool bridge: ${error.message}`)
    }
  }

  async function stop() {
    await bridge?.stop()
    bridge = undefined
  }

  // VS Code asks a person once whether an extension may use models, and only after something that a person did.
  async function allow() {
    try {
      const model = await chooseModel(vscode, settings().get('model', '') || undefined)
      const source = new vscode.CancellationTokenSource()
      const answer = await model.sendRequest([vscode.LanguageModelChatMessage.User('Say: ready')], {}, source.token)
      for await (const part of answer.stream) void part
      vscode.window.showInformationMessage(`workspool bridge: ${model.name ?? model.id} may be used`)
    } catch (error) {
      vscode.window.showWarningMessage(`workspool bridge: ${error.message}`)
    }
  }

  context.subscriptions.push(
    log,
    vscode.commands.registerCommand('workspool.bridge.start', start),
    vscode.commands.registerCommand('workspool.bridge.stop', stop),
    vscode.commands.registerCommand('workspool.bridge.allow', allow),
    { dispose: stop },
  )
  if (settings().get('autostart', true)) await start()
}

async function deactivate() {
  await bridge?.stop()
  bridge = undefined
}

// Where `workspool vscode` looks for it.
function bridgeFile(env) {
  if (env.WORKSPOOL_VSCODE_FILE) return env.WORKSPOOL_VSCODE_FILE
  const folder = env.XDG_CONFIG_HOME || path.join(os.homedir(), '.config')
  return path.join(folder, 'workspool', 'vscode-bridge.json')
}

module.exports = { activate, deactivate }
