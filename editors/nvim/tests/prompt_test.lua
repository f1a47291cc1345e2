-- The agent at work, for real: prompts, streams, approvals, edits of open buffers, steering, stopping.
local here = vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, 'S').source:sub(2)))
local T, F = dofile(here .. '/t.lua'), dofile(here .. '/fixture.lua')
local url, provider = F.provider(
  'Reply(hang=True)',
  [=[[
    Reply(text="Hello from the model, piece by piece.", pause=0.02, piece=4),
    Reply(text="I change it.", finish="tool_calls",
          calls=[Call(name="edit", arguments='{"path": "a.txt", "oldText": "two", "newText": "deux"}')]),
    Reply(text="Changed."),
    Reply(text="", finish="tool_calls",
          calls=[Call(name="bash", arguments='{"command": "touch made-by-bash"}')]),
    Reply(text="Then not."),
    Reply(text="Writing.", finish="tool_calls",
          calls=[Call(name="write", arguments='{"path": "b.txt", "content": "by the agent, longer\\n"}')]),
    Reply(text="Written."),
]]=]
)
F.models(url)
F.offline()
local root = F.project('app')
F.branched(root)
vim.g.pi_ls = vim.tbl_extend('force', vim.g.pi_ls, { trusted = true })
local settled = T.count('PiLsAgentSettled')

local function status()
  return require('pi_ls.status').get()
end

local function transcript()
  local bufnr = require('pi_ls.view').find('session')
  return bufnr and table.concat(vim.api.nvim_buf_get_lines(bufnr, 0, -1, false), '\n') or ''
end

local function see(text)
  T.wait('in the transcript: ' .. text .. '\n' .. transcript():sub(-600), function()
    return transcript():find(text, 1, true)
  end)
end

local function until_settled(count)
  T.wait('settled', function()
    return #settled == count
  end)
end

T.test('a prompt opens the transcript, the answer streams in, the meter is measured anew', function()
  local updates = T.count('PiLsMessageUpdate')
  vim.cmd.edit(root .. '/a.txt')
  T.wait('meter', function()
    return status() == 'pi 64% (auto)'
  end)
  vim.cmd('2PiLs prompt What is this?')
  T.wait('working', function()
    return status():match('working$')
  end)
  until_settled(1)
  see('`a.txt`, line 2:\n```text\ntwo\n```')
  see('\nHello from the model, piece by piece.\n')
  T.ok(#updates > 1, 'in pieces')
  local _, count = transcript():gsub('Hello from the model', '')
  T.eq(1, count)
  T.eq('a.txt', vim.fs.basename(vim.api.nvim_buf_get_name(0)))
  T.ok(not status():match('working'))
end)

T.test('an edit of an open, modified buffer: asked with a diff, made in the buffer, undone by u', function()
  vim.api.nvim_buf_set_lines(0, 0, 1, false, { 'ONE, not saved' })
  local buffer, preview = vim.api.nvim_get_current_buf(), nil
  local seen = T.choose(function(items)
    preview = vim.api.nvim_buf_get_lines(require('pi_ls.view').find('approval'), 0, -1, false)
    return items[1]
  end)
  vim.cmd('PiLs prompt Translate it')
  until_settled(2)
  T.ok(seen.options.prompt:match('^pi asks: .*a%.txt'), seen.options.prompt)
  T.eq(' ONE, not saved', preview[4])
  T.eq({ '-two', '+deux' }, { preview[5], preview[6] })
  T.eq({ 'ONE, not saved', 'deux', 'three' }, vim.api.nvim_buf_get_lines(buffer, 0, -1, false))
  T.eq('one\ntwo\nthree\n', F.read(root .. '/a.txt'))
  see('✓ edit')
  see('Changed.')
  vim.cmd('silent undo')
  T.eq({ 'ONE, not saved', 'two', 'three' }, vim.api.nvim_buf_get_lines(buffer, 0, -1, false))
  vim.cmd('edit!')
end)

T.test('no means no', function()
  T.choose('No')
  vim.cmd('PiLs prompt Run it')
  until_settled(3)
  see('✗ bash')
  T.eq(nil, vim.uv.fs_stat(root .. '/made-by-bash'))
  T.eq(nil, require('pi_ls.view').find('approval'))
end)

T.test('a file in no buffer is written to the disk', function()
  T.choose('for this session')
  vim.cmd('PiLs prompt Write b')
  until_settled(4)
  T.eq('by the agent, longer\n', F.read(root .. '/b.txt'))
end)

T.test('steering waits while the agent works; abort stops everything', function()
  vim.cmd('PiLs prompt Think for ever')
  T.wait('working', function()
    return status():match('working$')
  end)
  vim.cmd('PiLs steer Hurry up')
  T.message('queued')
  T.wait('queued', function()
    return require('pi_ls.state').current(require('pi_ls.client').get().id).queued == 1
  end)
  vim.cmd('PiLs abort')
  T.message('^pi: stopped$')
  until_settled(5)
  T.ok(not status():match('working'))
end)

T.test('what still waits comes back into the prompt', function()
  vim.cmd('PiLs unqueue')
  local bufnr = T.wait('prompt', function()
    return require('pi_ls.view').find('prompt')
  end)
  T.eq({ 'Hurry up' }, vim.api.nvim_buf_get_lines(bufnr, 0, -1, false))
  vim.cmd('PiLs unqueue')
  T.message('nothing waits')
end)

T.test('a shell command of one’s own', function()
  vim.cmd('PiLs bash echo from-the-shell')
  local bufnr = T.wait('output', function()
    return require('pi_ls.view').find('bash')
  end)
  local text = table.concat(vim.api.nvim_buf_get_lines(bufnr, 0, -1, false), '\n')
  T.ok(text:find('```\nfrom-the-shell\n```', 1, true), text)
end)

T.test('trust can be given and taken back', function()
  vim.cmd('PiLs trust off')
  T.message('this project is not trusted')
  vim.cmd('PiLs bash touch made-by-bash')
  T.message('not trusted.*%. :PiLs trust changes that%.')
  vim.cmd('PiLs trust')
  T.message('this project is trusted')
end)

T.test('pruning and restoring tell what they did', function()
  vim.cmd('PiLs prune')
  T.message('0 results left out, 0 tokens saved')
  vim.cmd('PiLs restore')
  T.message('0 results are back')
end)

provider:kill('sigterm')
T.finish()
