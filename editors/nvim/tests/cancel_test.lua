-- A provider that never answers, and a user who does not want to wait.
local here = vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, 'S').source:sub(2)))
local T, F = dofile(here .. '/t.lua'), dofile(here .. '/fixture.lua')
local url, provider = F.provider('Reply(hang=True)')
F.models(url)
F.settings { compaction = { keepRecentTokens = 1000 } }
local root = F.project('app')
local file = F.branched(root)
local ends = T.count('PiLsCompactionEnd')
local kinds = {}
vim.api.nvim_create_autocmd('LspProgress', {
  callback = function(event)
    table.insert(kinds, event.data.params.value.kind)
  end,
})

local function status()
  return require('pi_ls.status').get()
end

T.test('compaction: progress, :PiLs abort, one end, the old meter', function()
  vim.cmd.edit(root .. '/a.txt')
  T.wait('meter', function()
    return status() == 'pi 64% (auto)'
  end)
  vim.cmd('PiLs compact')
  T.wait('compacting', function()
    return status() == 'pi compacting'
  end)
  T.eq('PiLsBusy', require('pi_ls.status').color())
  T.wait('progress', function()
    return kinds[1] == 'begin'
  end)
  T.ok(vim.lsp.status() ~= '', 'progress for plain statuslines')
  vim.cmd('PiLs abort')
  T.message('^pi: stopped$')
  T.wait('meter', function()
    return status() == 'pi 64% (auto)'
  end)
  T.wait('end of progress', function()
    return kinds[#kinds] == 'end'
  end)
  T.eq({ 1, true }, { #ends, ends[1].params.aborted })
  T.eq(nil, F.read(file):find('"type":"compaction"', 1, true))
end)

T.test('branch summary: stopped, nothing moved', function()
  vim.cmd('PiLs tree')
  local client = require('pi_ls.client').get()
  require('pi_ls.navigate').to(client, 'a3', { summarize = true })
  T.wait('summarizing', function()
    return status() == 'pi summarizing'
  end)
  vim.wait(100)
  vim.cmd('PiLs abort')
  T.message('the session is where it was')
  T.eq('pi 64% (auto)', status())
  T.eq('a2', require('pi_ls.state').current(client.id).info.leafId)
end)

T.test('busy is said in words', function()
  vim.cmd('PiLs compact')
  T.wait('compacting', function()
    return status() == 'pi compacting'
  end)
  T.messages = {}
  vim.cmd('PiLs undo')
  T.message('^pi: %u.*compaction')
  vim.cmd('PiLs abort')
  T.message('^pi: stopped$')
end)

T.test('nothing to stop', function()
  vim.cmd('PiLs abort')
  T.message('nothing was running')
end)

T.test('a server that dies while it compacts leaves no “compacting” behind', function()
  vim.cmd('PiLs compact')
  T.wait('compacting', function()
    return status() == 'pi compacting'
  end)
  for _, pid in ipairs(vim.api.nvim_get_proc_children(vim.fn.getpid())) do
    if pid ~= provider.pid then
      vim.uv.kill(pid, 'sigkill')
    end
  end
  T.message('the server ended')
  T.eq('', status())
  vim.cmd('PiLs restart')
  T.wait('meter', function()
    return status() == 'pi 64% (auto)'
  end)
  T.eq('pi-ls://tree', vim.api.nvim_buf_get_name(0))
  T.eq(root, require('pi_ls.client').get().root_dir)
  vim.cmd.edit(root .. '/a.txt')
  T.eq(1, #vim.lsp.get_clients { bufnr = 0, name = 'pi_ls' })
end)

provider:kill('sigterm')
T.finish()
