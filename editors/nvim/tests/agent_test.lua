-- The agent at work: events of its protocol, given to the plugin as the server would.
local here = vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, 'S').source:sub(2)))
local T, F = dofile(here .. '/t.lua'), dofile(here .. '/fixture.lua')
F.models()
F.offline()
local root = F.project('app')
F.branched(root)
local client

---@param event string
---@param params? table
local function push(event, params)
  local common = { sessionId = 's-1', workspace = vim.uri_from_fname(root), seq = 1 }
  require('pi_ls.events').handle(client.id, event, vim.tbl_extend('force', common, params or {}))
end

local function transcript()
  local bufnr = require('pi_ls.view').find('session')
  return bufnr and table.concat(vim.api.nvim_buf_get_lines(bufnr, 0, -1, false), '\n') or ''
end

local function see(text)
  T.wait('in the transcript: ' .. text, function()
    return transcript():find(text, 1, true)
  end)
end

---What would be sent, instead of sending it.
local function record()
  local sent = {}
  local real = require('pi_ls.client').command
  require('pi_ls.client').command = function(_, command, arguments, callback)
    table.insert(sent, { command, arguments })
    if callback then
      callback(nil, { disposition = 'started', answered = true })
    end
    return 1
  end
  return sent, function()
    require('pi_ls.client').command = real
  end
end

local function reply(text)
  return { role = 'assistant', model = 'm200', content = { { type = 'text', text = text } } }
end

T.test('the transcript shows what is in the context', function()
  vim.cmd.edit(root .. '/a.txt')
  T.wait('meter', function()
    return require('pi_ls.status').get() == 'pi 64% (auto)'
  end)
  client = require('pi_ls.client').get()
  vim.cmd('PiLs transcript')
  see('The tests pass.')
  T.ok(not transcript():find('The other way', 1, true), 'other branches are not in the context')
  vim.cmd('normal! G')
end)

T.test('an answer streams in, thinking and tool calls included, and is settled once', function()
  push('agent_start')
  T.eq('pi 64% (auto) working', require('pi_ls.status').get())
  push('message_start', { message = { role = 'assistant', content = {}, model = 'm200' } })
  push('message_update', {
    assistantMessageEvent = { type = 'thinking_delta', contentIndex = 0, delta = 'Let me see' },
  })
  push(
    'message_update',
    { assistantMessageEvent = { type = 'text_delta', contentIndex = 1, delta = 'I loo' } }
  )
  push('message_update', { assistantMessageEvent = { type = 'text_delta', contentIndex = 1, delta = 'k.' } })
  push('message_update', {
    assistantMessageEvent = {
      type = 'toolcall_delta',
      contentIndex = 2,
      toolName = 'read',
      delta = '{"path": "a.txt"}',
    },
  })
  see('> Let me see')
  see('\nI look.\n')
  see('▸ read {"path": "a.txt"}')
  local call = { type = 'toolCall', id = 'c1', name = 'read', arguments = { path = 'a.txt' } }
  push('message_end', {
    message = { role = 'assistant', model = 'm200', content = { { type = 'text', text = 'I look.' }, call } },
    entryId = 'x1',
  })
  see('▸ read a.txt')
  local _, count = transcript():gsub('I look%.', '')
  T.eq(1, count)
  T.eq(vim.fn.line('$'), vim.fn.line('.'), 'the cursor follows')
end)

T.test('tools at work are seen, then their results', function()
  push('tool_execution_start', { toolCallId = 'c1', toolName = 'bash', args = { command = 'make\nmore' } })
  see('▸ bash make … … running')
  push('tool_execution_update', {
    toolCallId = 'c1',
    toolName = 'bash',
    args = { command = 'make' },
    partialResult = { content = { { type = 'text', text = 'compiling' } } },
  })
  see('compiling')
  push('tool_execution_end', { toolCallId = 'c1', toolName = 'bash', result = {}, isError = false })
  local long = table.concat(vim.fn.range(1, 50), '\n')
  push('message_end', {
    message = { role = 'toolResult', toolName = 'bash', content = { { type = 'text', text = long } } },
  })
  see('✓ bash\n```\n1\n2')
  see('… 30 more lines')
  T.wait('no tool runs', function()
    return not transcript():find('running', 1, true)
  end)
end)

T.test('whoever reads further up is not moved', function()
  vim.cmd('normal! gg')
  push('message_end', { message = reply('More.') })
  see('More.')
  T.eq(1, vim.fn.line('.'))
end)

T.test('whoever opens it anew sees its end', function()
  vim.cmd('normal! gg')
  vim.cmd.close()
  vim.cmd('PiLs transcript')
  T.eq(vim.fn.line('$'), vim.fn.line('.'))
end)

T.test('retries, queue, failures', function()
  push('auto_retry_start', { attempt = 1, maxAttempts = 3, delayMs = 10, errorMessage = 'overloaded' })
  T.eq('pi 64% (auto) retry 1/3', require('pi_ls.status').get())
  push('auto_retry_end')
  push('queue_update', { steering = { 'a' }, followUp = {} })
  push('agent_end', { errorMessage = 'Context overflow recovery failed: too long' })
  T.message('Context overflow recovery failed')
  push('agent_settled', { aborted = false })
  T.eq('pi 64% (auto)', require('pi_ls.status').get())
end)

T.test('the meter’s figures', function()
  local function shown(usage)
    push('context_usage', usage)
    return require('pi_ls.status').get(), require('pi_ls.status').color()
  end
  local window = { contextWindow = 200000, tokens = 1, source = 'measured', autoCompactionEnabled = false }
  local function with(fields)
    return vim.tbl_extend('force', window, fields)
  end
  T.eq({ 'pi 0%', 'PiLsNormal' }, { shown(with { percent = 0.2 }) })
  T.eq({ 'pi 70%', 'PiLsWarning' }, { shown(with { percent = 70 }) })
  T.eq({ 'pi 95%', 'PiLsError' }, { shown(with { percent = 95.4 }) })
  T.eq({ 'pi 120%', 'PiLsError' }, { shown(with { percent = 120 }) })
  T.eq('pi ~15%', (shown(with { percent = 15, source = 'measured+estimate' })))
  T.eq('pi ~15%', (shown(with { percent = 15, source = 'estimate' })))
  local unknown = { contextWindow = 200000, source = 'estimate', autoCompactionEnabled = true }
  T.eq({ 'pi ? (auto)', 'PiLsNormal' }, { shown(unknown) })
  unknown.autoCompactionPaused = true
  T.eq('pi ? (auto paused)', (shown(unknown)))
  T.eq('', (shown {}))
  push('context_usage', with { percent = 95 })
  T.eq('%#PiLsError#pi 95%%%*', require('pi_ls.status').statusline())
  T.eq('pi 95%%', require('pi_ls.status').get { escape = true })
end)

T.test('a session that is not the current one changes nothing that is shown', function()
  push(
    'context_usage',
    { sessionId = 'other', contextWindow = 10, tokens = 1, percent = 10, source = 'measured' }
  )
  push('message_end', { sessionId = 'other', message = reply('Not here') })
  T.eq('pi 95%', require('pi_ls.status').get())
  vim.wait(100)
  T.ok(not transcript():find('Not here', 1, true))
end)

T.test('prompts: at once, from a range with file and lines, from the buffer', function()
  vim.cmd('wincmd p')
  vim.cmd.edit(root .. '/a.txt')
  local sent, restore = record()
  vim.cmd('PiLs prompt What is | this?')
  vim.cmd('2,3PiLs prompt Why?')
  vim.cmd('PiLs steer Stop that')
  vim.cmd('PiLs followup Then the docs')
  T.eq({ 'pi.prompt', { text = 'What is | this?' } }, sent[1])
  T.eq({ 'pi.prompt', { text = '`a.txt`, lines 2-3:\n```text\ntwo\nthree\n```\n\nWhy?' } }, sent[2])
  T.eq({ 'pi.steer', { text = 'Stop that' } }, sent[3])
  T.eq({ 'pi.followUp', { text = 'Then the docs' } }, sent[4])
  vim.cmd('1PiLs prompt')
  T.eq('pi-ls://prompt', vim.api.nvim_buf_get_name(0))
  T.eq('`a.txt`, line 1:', vim.fn.getline(1))
  vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'From the buffer', 'two lines' })
  vim.cmd.write()
  T.eq({ 'pi.prompt', { text = 'From the buffer\ntwo lines' } }, sent[5])
  T.ok(vim.api.nvim_buf_get_name(0) ~= 'pi-ls://prompt', 'the window closes')
  local prompt = require('pi_ls.view').find('prompt')
  T.eq({ '' }, vim.api.nvim_buf_get_lines(prompt, 0, -1, false))
  restore()
end)

T.test('an approval is asked with a diff beside it; the answer goes out', function()
  local sent, restore = record()
  local preview
  local seen = T.choose(function(items)
    local bufnr = require('pi_ls.view').find('approval')
    preview = vim.api.nvim_buf_get_lines(bufnr, 0, -1, false)
    return items[2]
  end)
  push('approval_request', {
    approvalId = 'p1',
    toolName = 'edit',
    args = { path = 'a.txt', edits = { { oldText = 'two', newText = 'deux' } } },
    summary = 'Edit a.txt',
  })
  T.ok(require('pi_ls.status').get():match('asks$'))
  T.wait('answered', function()
    return #sent == 1
  end)
  T.eq({ 'pi.answerApproval', { approvalId = 'p1', decision = 'session', sessionId = 's-1' } }, sent[1])
  T.eq('pi asks: Edit a.txt', seen.options.prompt)
  T.eq({ '--- a.txt', '+++ a.txt', '@@ -1,3 +1,3 @@', ' one', '-two', '+deux', ' three' }, preview)
  push('approval_resolved', { approvalId = 'p1', decision = 'session' })
  T.eq(nil, require('pi_ls.view').find('approval'))
  restore()
end)

T.test('two questions come one after the other; one put off can be answered later', function()
  local sent, restore = record()
  local asked = {}
  vim.ui.select = function(_, options, on_choice)
    table.insert(asked, options.prompt)
    vim.schedule(function()
      on_choice(nil)
    end)
  end
  push(
    'approval_request',
    { approvalId = 'q1', toolName = 'bash', args = { command = 'rm x' }, summary = 'Run rm x' }
  )
  push(
    'approval_request',
    { approvalId = 'q2', toolName = 'bash', args = { command = 'ls' }, summary = 'Run ls' }
  )
  T.message('waits for your answer')
  T.eq(0, #sent)
  vim.cmd('PiLs approve no')
  T.eq('no', sent[1][2].decision)
  push('approval_resolved', { approvalId = 'q1', decision = 'no' })
  T.wait('the second', function()
    return #asked == 2
  end)
  T.eq('pi asks: Run ls', asked[2])
  push('approval_resolved', { approvalId = 'q2', decision = 'once' })
  vim.cmd('PiLs approve')
  T.message('asks nothing')
  restore()
end)

T.test('nobody is asked in the middle of typing', function()
  local seen = T.choose(nil)
  local mode = vim.api.nvim_get_mode
  vim.api.nvim_get_mode = function()
    return { mode = 'i', blocking = false }
  end
  push(
    'approval_request',
    { approvalId = 'r1', toolName = 'bash', args = { command = 'ls' }, summary = 'Run ls' }
  )
  T.message('the agent asks: Run ls')
  T.eq(nil, seen.items)
  vim.api.nvim_get_mode = mode
  vim.api.nvim_exec_autocmds('ModeChanged', { pattern = 'i:n' })
  T.wait('asked now', function()
    return seen.items
  end)
  push('approval_resolved', { approvalId = 'r1', decision = 'no' })
end)

T.test('files the agent changes: unmodified buffers are read again, others never', function()
  local clean, dirty = F.write(root .. '/clean.txt', 'old\n'), F.write(root .. '/dirty.txt', 'old\n')
  vim.cmd.edit(clean)
  local clean_buffer = vim.api.nvim_get_current_buf()
  vim.cmd.edit(dirty)
  local dirty_buffer = vim.api.nvim_get_current_buf()
  vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'mine' })
  local past = os.time() - 60
  for name, path in pairs { clean = clean, dirty = dirty } do
    vim.uv.fs_utime(path, past, past)
    push('tool_execution_start', { toolCallId = name, toolName = 'write', args = { path = name .. '.txt' } })
    F.write(path, 'the agent’s, longer\n')
    push('tool_execution_end', { toolCallId = name, toolName = 'write', result = {}, isError = false })
  end
  push('agent_settled', { aborted = false })
  T.wait('read again', function()
    return vim.api.nvim_buf_get_lines(clean_buffer, 0, 1, false)[1] == 'the agent’s, longer'
  end)
  T.message('dirty.txt was changed on the disk, and has unsaved changes here')
  T.eq({ 'mine' }, vim.api.nvim_buf_get_lines(dirty_buffer, 0, -1, false))
  T.eq(true, vim.bo[dirty_buffer].modified)
  vim.bo[dirty_buffer].modified = false
end)

T.test('the server’s edits of an open buffer go through it and can be undone', function()
  local path = F.write(root .. '/open.txt', 'one\n')
  vim.cmd.edit(path)
  local edit = { range = { start = { line = 0, character = 0 }, ['end'] = { line = 0, character = 3 } } }
  edit.newText = 'uno'
  local params = { edit = { changes = { [vim.uri_from_fname(path)] = { edit } } } }
  local result = vim.lsp.handlers['workspace/applyEdit'](nil, params, {
    client_id = client.id,
    method = 'workspace/applyEdit',
  })
  T.eq(true, result.applied)
  T.eq('uno', vim.fn.getline(1))
  vim.cmd.undo()
  T.eq('one', vim.fn.getline(1))
  vim.cmd('edit!')
end)

T.test('a command the server does not know is an error in words', function()
  require('pi_ls.client').command(client, 'pi.noSuchThing')
  T.message('noSuchThing')
end)

T.finish()
