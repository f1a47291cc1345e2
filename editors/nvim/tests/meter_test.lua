-- The meter before, during and after a compaction; every command that looks or changes, over the real server.
local here = vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, 'S').source:sub(2)))
local T, F = dofile(here .. '/t.lua'), dofile(here .. '/fixture.lua')
F.models()
F.offline()
local root = F.project('app')
local file = F.branched(root)
local starts, ends = T.count('PiLsCompactionStart'), T.count('PiLsCompactionEnd')

local function status()
  return require('pi_ls.status').get()
end

local function shown()
  return vim.api.nvim_eval_statusline(vim.o.statusline, {}).str:match('(pi .-)%s*$')
end

local function buffer(name)
  local bufnr = require('pi_ls.view').find(name)
  return bufnr and table.concat(vim.api.nvim_buf_get_lines(bufnr, 0, -1, false), '\n')
end

local function meter(text)
  T.wait('meter ' .. text .. ', last ' .. status(), function()
    return status() == text
  end)
end

T.test('before the server starts, at most its configuration is loaded', function()
  local early = { 'pi_ls.config', 'pi_ls.events', 'pi_ls.server' } -- newer Neovims read it when it is enabled
  for name in pairs(package.loaded) do
    T.ok(not vim.startswith(name, 'pi_ls') or vim.tbl_contains(early, name), name)
  end
  T.eq('', status())
end)

T.test('vim.lsp.enable alone attaches, and the meter shows what was measured', function()
  vim.cmd.edit(root .. '/a.txt')
  meter('pi 64% (auto)')
  T.eq('pi 64% (auto)', shown())
  T.eq('PiLsNormal', require('pi_ls.status').color())
  T.eq(false, require('pi_ls.status').data().estimated)
  T.eq(128000, require('pi_ls.status').data().tokens)
end)

T.test('preview', function()
  vim.cmd('PiLs preview')
  local text = T.wait('preview', function()
    return buffer('preview')
  end)
  T.ok(text:find('Entries summarized       2', 1, true), text)
  T.ok(text:find('Context now              128,000 tokens', 1, true), text)
  vim.cmd.close()
end)

T.test('context and stats', function()
  vim.cmd('PiLs context')
  local text = T.wait('context', function()
    return buffer('context')
  end)
  T.ok(text:find('128,000 of 200,000', 1, true), text)
  T.ok(text:find('## By kind', 1, true), text)
  vim.cmd.close()
  vim.cmd('PiLs stats')
  text = T.wait('stats', function()
    return buffer('stats')
  end)
  T.ok(text:find('Messages                 6', 1, true), text)
  vim.cmd.close()
end)

T.test('automatic compaction off and on', function()
  vim.cmd('PiLs auto off')
  meter('pi 64%')
  T.message('automatic compaction is off')
  vim.cmd('PiLs auto')
  T.message('^pi: automatic compaction is off$')
  vim.cmd('PiLs auto on')
  meter('pi 64% (auto)')
end)

T.test('compact runs at once; unknown afterwards', function()
  local during = {}
  vim.api.nvim_create_autocmd('User', {
    pattern = 'PiLsCompactionStart',
    once = true,
    callback = function()
      table.insert(during, status())
    end,
  })
  vim.cmd('PiLs compact Keep what the parser needs')
  T.message('compacted: 128,000 → about [%d,]+ tokens')
  T.eq({ 'pi compacting' }, during)
  meter('pi ? (auto)')
  T.eq({ 1, 1 }, { #starts, #ends })
  T.eq('manual', starts[1].params.reason)
  T.eq(nil, require('pi_ls.status').data().percent)
end)

T.test('already compacted is said in a sentence', function()
  vim.cmd('PiLs compact')
  T.message('^pi: .*[Cc]ompact')
  meter('pi ? (auto)')
end)

T.test('undo', function()
  vim.cmd('PiLs undo')
  T.message('undone')
  meter('pi 64% (auto)')
end)

T.test('rename, label, and both in the file', function()
  vim.cmd('PiLs rename Parser work')
  T.wait('name', function()
    return require('pi_ls.status').data().session == 'Parser work'
  end)
  vim.cmd('PiLs label good point')
  T.wait('label in the file', function()
    return F.read(file):find('"label":"good point"', 1, true)
  end)
end)

T.test('export', function()
  local path = root .. '/talk.md'
  vim.cmd('PiLs export markdown ' .. path)
  T.message('exported to')
  T.ok(F.read(path):find('I fixed the parser', 1, true))
end)

T.test('thinking and model', function()
  vim.cmd('PiLs thinking high')
  T.message('thinking level high')
  vim.cmd('PiLs model fake/m64')
  meter('pi 200% (auto)')
  T.eq('PiLsError', require('pi_ls.status').color())
  vim.cmd('PiLs model nonsense')
  T.message('provider/id')
  local seen = T.choose('fake/m200')
  vim.cmd('PiLs model')
  meter('pi 64% (auto)')
  T.ok(vim.tbl_contains(seen.shown, 'fake/m200  (200k tokens)'), vim.inspect(seen.shown))
  T.ok(vim.tbl_contains(vim.fn.getcompletion('PiLs model fake/', 'cmdline'), 'fake/m64'))
end)

T.test('new, sessions, open', function()
  vim.cmd('PiLs new Second')
  T.message('began Second')
  T.wait('current', function()
    return require('pi_ls.status').data().session == 'Second'
  end)
  local seen = T.choose('Parser work')
  vim.cmd('PiLs sessions')
  T.message('opened Parser work')
  T.eq('pi_ls_session', seen.options.kind)
  vim.cmd('PiLs new Third')
  T.message('began Third')
  vim.cmd('PiLs open s-1')
  meter('pi 64% (auto)')
  T.ok(vim.tbl_contains(vim.fn.getcompletion('PiLs open s', 'cmdline'), 's-1'))
  vim.cmd('PiLs open does-not-exist')
  T.message('does%-not%-exist')
end)

T.test('clone and fork; the message comes back into the prompt', function()
  vim.cmd('PiLs clone')
  T.message('cloned to')
  local seen = T.choose('Fix the parser')
  vim.cmd('PiLs fork')
  T.message('forked to')
  T.eq('pi_ls_fork', seen.options.kind)
  T.wait('prompt', function()
    return (buffer('prompt') or ''):match('^Fix the parser%.')
  end)
  vim.api.nvim_buf_set_lines(0, 0, -1, false, {})
  vim.cmd.close()
  vim.cmd('PiLs open s-1')
  meter('pi 64% (auto)')
end)

T.test('close, and what needs a session says so', function()
  vim.cmd 'PiLs close'
  meter ''
  vim.cmd 'PiLs compact'
  T.message '^pi: .*session'
end)

T.test('reload and log', function()
  vim.cmd('PiLs reload')
  T.message('settings read, 0 problems')
  vim.cmd('PiLs log')
  T.ok(vim.api.nvim_buf_get_name(0):match('lsp%.log$'))
  vim.cmd.close()
end)

T.test('subcommands are completed, unknown ones named', function()
  T.eq({ 'transcript', 'tree', 'trust' }, vim.fn.getcompletion('PiLs tr', 'cmdline'))
  T.eq({ 'off', 'on' }, vim.fn.sort(vim.fn.getcompletion('PiLs auto ', 'cmdline')))
  vim.cmd('PiLs frobnicate')
  T.message('there is no :PiLs frobnicate')
end)

T.finish()
