// The work: a conversation with a chat model of VS Code, and tools that stay in one folder.

const { toolsFor } = require('./tools')

class Failed extends Error {
  constructor(kind, message) {
    super(message)
    this.kind = kind
  }
}

// The model of an id or family, or the first that there is. A model that was asked for is never replaced.
async function chooseModel(vscode, wanted) {
  const all = await vscode.lm.selectChatModels({})
  const found = wanted ? all.find((m) => m.id === wanted) ?? all.find((m) => m.family === wanted) : all[0]
  if (found) return found
  const known = [...new Set(all.map((m) => m.id))].join(', ')
  if (wanted) throw new Failed('model_not_found', `VS Code offers no model ${wanted}; it offers ${known || 'none'}`)
  throw new Failed('auth', 'VS Code offers no chat model: is Copilot, or another provider of models, signed in?')
}

// Works on a task; returns the model's last words. `tell` takes facts, `signal` ends it.
async function work(vscode, task, tell, signal) {
  const model = await chooseModel(vscode, task.model)
  tell({ fact: 'program', version: vscode.version, model: model.id })
  const tools = toolsFor(task)
  const source = new vscode.CancellationTokenSource()
  const stop = () => source.cancel()
  signal.addEventListener('abort', stop)
  try {
    const { LanguageModelChatMessage: Message } = vscode
    const where = `You work in the folder ${task.workspace}, by the tools you have, and nowhere else. Paths are relative to it.`
    const messages = [Message.User(`${where}\n\n${task.prompt}`)]
    for (let turn = 0; turn < task.max_turns; turn += 1) {
      const { parts, text, calls } = await answer(vscode, model, messages, tools, source.token)
      if (signal.aborted) throw new Failed('interrupted', 'whoever asked is gone')
      tell({ fact: 'usage', scope: 'delta', usage: { turns: 1 } })
      if (text) tell({ fact: 'message', text })
      if (calls.length === 0) return text
      messages.push(Message.Assistant(parts))
      const results = []
      for (const call of calls) {
        tell({ fact: 'tool_call', id: call.callId, name: call.name, summary: summary(call.input) })
        const { ok, output } = await tools.call(call.name, call.input, signal)
        if (signal.aborted) throw new Failed('interrupted', 'whoever asked is gone')
        tell({ fact: 'tool_result', id: call.callId, ok })
        results.push(new vscode.LanguageModelToolResultPart(call.callId, [new vscode.LanguageModelTextPart(output)]))
      }
      messages.push(Message.User(results))
    }
    throw new Failed('own_limit', `the model was not done after ${task.max_turns} turns`)
  } finally {
    signal.removeEventListener('abort', stop)
    source.dispose()
  }
}

async function answer(vscode, model, messages, tools, token) {
  const parts = []
  try {
    const response = await model.sendRequest(
      messages,
      { tools: tools.described, justification: 'A task of workspool was handed to this window.' },
      token,
    )
    for await (const part of response.stream) {
      const known = part instanceof vscode.LanguageModelTextPart || part instanceof vscode.LanguageModelToolCallPart
      if (known) parts.push(part)
    }
  } catch (error) {
    throw new Failed(kindOf(error), `${model.id}: ${error.message ?? error}`)
  }
  const text = parts.filter((p) => p instanceof vscode.LanguageModelTextPart).map((p) => p.value).join('')
  return { parts, text, calls: parts.filter((p) => p instanceof vscode.LanguageModelToolCallPart) }
}

// Who should act, from the codes of VS Code's errors and the words of its providers.
function kindOf(error) {
  const text = `${error.code ?? ''} ${error.message ?? ''} ${error.cause?.message ?? ''}`
  if (/NoPermissions|not signed in|sign in|unauthorized/i.test(text)) return 'auth'
  if (/quota|exceeded your/i.test(text)) return 'quota'
  if (/rate.?limit|too many requests|429/i.test(text)) return 'rate_limited'
  if (/NotFound/i.test(text)) return 'model_not_found'
  if (/token limit|too long|context/i.test(text)) return 'context_full'
  if (/Blocked|off.?topic|filtered/i.test(text)) return 'invalid_request'
  if (/cancel/i.test(text)) return 'interrupted'
  return 'provider'
}

function summary(input) {
  const text = input?.path ?? input?.command ?? ''
  return String(text).replace(/\s+/g, ' ').slice(0, 200)
}

module.exports = { work, chooseModel }
