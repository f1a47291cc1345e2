// The published program's own session manager: `reader.mjs ROOT read|write SESSION` prints what it sees as JSON.
import { pathToFileURL } from 'node:url'

const [root, action, file] = process.argv.slice(2)
const module = `${root}/node_modules/@earendil-works/pi-coding-agent/dist/core/session-manager.js`
const { SessionManager } = await import(pathToFileURL(module).href)
const session = SessionManager.open(file)

const usage = (total) => ({
  input: total, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: total + 1,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
})
const assistant = (content, stopReason) => ({
  role: 'assistant', content, api: 'openai-completions', provider: 'fake', model: 'm200',
  usage: usage(5000), stopReason, timestamp: Date.now(),
})
const user = (text) => ({ role: 'user', content: [{ type: 'text', text }], timestamp: Date.now() })

if (action === 'write') {
  session.appendMessage(user('asked there'))
  const call = { type: 'toolCall', id: 'there_1', name: 'bash', arguments: { command: 'ls' } }
  session.appendMessage(assistant([{ type: 'text', text: 'looking' }, call], 'toolUse'))
  session.appendMessage({
    role: 'toolResult', toolCallId: 'there_1', toolName: 'bash',
    content: [{ type: 'text', text: 'a.txt' }], isError: false, timestamp: Date.now(),
  })
  session.appendMessage(assistant([{ type: 'text', text: 'there is a.txt' }], 'stop'))
  const kept = session.appendMessage(user('kept there'))
  session.appendMessage(assistant([{ type: 'text', text: 'kept answer' }], 'stop'))
  session.appendCompaction('SUMMARY OF THERE', kept, 4000, { readFiles: ['a.txt'], modifiedFiles: [] })
  session.appendThinkingLevelChange('low')
  session.appendSessionInfo('named there')
}

const text = (message) => {
  if (message.summary !== undefined) return message.summary
  if (typeof message.content === 'string') return message.content
  return message.content.map((block) => block.text ?? block.thinking ?? JSON.stringify(block.arguments)).join('')
}
const context = session.buildSessionContext()
console.log(JSON.stringify({
  leaf: session.getLeafId(),
  branch: session.getBranch().map((entry) => entry.id),
  entries: session.getEntries().length,
  name: session.getSessionName() ?? null,
  thinkingLevel: context.thinkingLevel,
  model: context.model,
  messages: context.messages.map((message) => [message.role, text(message)]),
}))
