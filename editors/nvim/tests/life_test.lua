-- Start, two projects, the end of a server and its return, options, health, help.
local here = vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, 'S').source:sub(2)))
local T, F = dofile(here .. '/t.lua'), dofile(here .. '/fixture.lua')
F.models()
F.offline()
local one, two = F.project('one'), F.project('two')
F.branched(one, 's-one')
F.session(two, 's-two', { F.user('u1', nil, 'Hello'), F.assistant('a1', 'u1', 'Hello.', 20000) })

local function status()
  return require('pi_ls.status').get()
end

local function clients()
  return vim.lsp.get_clients { name = 'pi_ls' }
end

local function stop_all()
  for _, client in ipairs(clients()) do
    client:stop()
  end
  T.wait('none', function()
    return #clients() == 0
  end)
end

T.test('one server for each project, whatever the file type; each buffer shows its own meter', function()
  F.write(one .. '/b.py', 'pass\n')
  F.write(one .. '/noext', 'x\n')
  vim.cmd.edit(one .. '/a.txt')
  T.wait('first', function()
    return status() == 'pi 64% (auto)'
  end)
  vim.cmd.edit(one .. '/b.py')
  T.eq(1, #clients())
  T.wait('attached', function()
    return #vim.lsp.get_clients { bufnr = 0, name = 'pi_ls' } == 1
  end)
  vim.cmd.edit(one .. '/noext')
  T.eq('pi 64% (auto)', status())
  vim.cmd.edit(two .. '/a.txt')
  T.wait('second', function()
    return status() == 'pi 10% (auto)'
  end)
  T.eq(2, #clients())
  vim.cmd.edit(one .. '/a.txt')
  T.eq('pi 64% (auto)', status())
end)

T.test('views belong to the project they were opened from', function()
  vim.cmd.edit(two .. '/a.txt')
  vim.cmd('PiLs tree')
  T.wait('tree', function()
    return vim.fn.line('$') == 2
  end)
  T.eq('pi 10% (auto)', status())
  vim.cmd.close()
  vim.cmd.edit(one .. '/a.txt')
  vim.cmd('PiLs tree')
  T.wait('tree', function()
    return vim.fn.line('$') == 6
  end)
  vim.cmd.close()
end)

T.test('a file of another project never means the only server that runs', function()
  local three = F.project('three')
  F.write(three .. '/noext', 'x\n')
  for _, client in ipairs(clients()) do
    if client.root_dir == two then
      client:stop()
    end
  end
  T.wait('one', function()
    return #clients() == 1
  end)
  vim.cmd.edit(three .. '/noext')
  T.eq(nil, require('pi_ls.client').get())
  T.eq('', status())
  vim.cmd.edit(two .. '/a.txt')
  vim.cmd('PiLs restart')
  T.wait('the second again', function()
    return status() == 'pi 10% (auto)'
  end)
end)

T.test('commands work where the server is not enabled', function()
  vim.lsp.enable('pi_ls', false)
  T.wait('none', function()
    return #clients() == 0
  end)
  vim.cmd.edit(one .. '/a.txt')
  vim.cmd('PiLs abort')
  T.message('nothing was running')
  vim.lsp.enable('pi_ls')
  vim.cmd.edit(two .. '/a.txt')
  vim.cmd('PiLs restart')
  T.wait('the second again', function()
    return status() == 'pi 10% (auto)'
  end)
end)

T.test('a server that is killed is reported, and restarts with its buffers and its session', function()
  vim.cmd.edit(one .. '/a.txt')
  vim.cmd('PiLs new Kept')
  T.message('began Kept')
  vim.cmd('PiLs open s-one')
  T.message('opened')
  local client = require('pi_ls.client').get()
  local ended = T.count('PiLsExit')
  local servers = vim.api.nvim_get_proc_children(vim.fn.getpid())
  for _, pid in ipairs(servers) do
    vim.uv.kill(pid, 'sigkill')
  end
  T.message('the server ended %(signal 9%)')
  T.wait('gone', function()
    return #ended == #servers and vim.lsp.get_client_by_id(client.id) == nil
  end)
  T.eq('', status())
  vim.cmd('PiLs restart')
  T.wait('back', function()
    return status() == 'pi 64% (auto)'
  end)
  T.eq(1, #vim.lsp.get_clients { bufnr = 0, name = 'pi_ls' })
end)

T.test('restart of a running server keeps buffers and session, and reports no crash', function()
  local before = require('pi_ls.client').get().id
  local buffers = vim.tbl_count(require('pi_ls.client').get().attached_buffers)
  vim.cmd('PiLs restart')
  T.wait('a new one', function()
    local client = require('pi_ls.client').get()
    return client and client.id ~= before and status() == 'pi 64% (auto)'
  end)
  T.eq(buffers, vim.tbl_count(require('pi_ls.client').get().attached_buffers))
  for _, message in ipairs(T.messages) do
    T.ok(not message:find('ended', 1, true), message)
  end
end)

T.test('a command starts the server where no file is open yet', function()
  stop_all()
  vim.cmd.cd(two)
  vim.cmd.enew()
  vim.cmd('PiLs stats')
  local stats = T.wait('stats', function()
    return require('pi_ls.view').find('stats')
  end)
  T.eq('# Session', vim.api.nvim_buf_get_lines(stats, 0, 1, false)[1])
  vim.cmd.close()
end)

T.test('the plugin and its configuration cost under 2 ms at start', function()
  local plugin = vim.fs.dirname(here) .. '/plugin/pi_ls.lua'
  local best = math.huge
  for _ = 1, 10 do
    vim.g.loaded_pi_ls = nil
    for _, name in ipairs { 'pi_ls.config', 'pi_ls.events', 'pi_ls.server' } do
      package.loaded[name] = nil
    end
    local before = vim.uv.hrtime()
    vim.cmd.source(plugin)
    dofile(vim.fs.dirname(here) .. '/lsp/pi_ls.lua')
    best = math.min(best, (vim.uv.hrtime() - before) / 1e6)
  end
  io.stdout:write(('     %.2f ms\n'):format(best))
  T.ok(best < 2, ('%.2f ms'):format(best))
end)

T.test('options: defaults, wrong values and unknown keys by name', function()
  local resolve = require('pi_ls.config').resolve
  local config, problems = resolve(nil)
  T.eq({ { 'pi-ls' }, 0 }, { config.cmd, #problems })
  config, problems = resolve {
    cmd = 'pi-ls',
    modle = 'x/y',
    auto_open = 'newest',
    status = { warning = 50, colour = 'red' },
    trusted = function()
      return true
    end,
  }
  T.eq({ { 'pi-ls' }, 'latest', 50, 90 }, {
    config.cmd,
    config.auto_open,
    config.status.warning,
    config.status.error,
  })
  T.eq(
    { 'auto_open', 'cmd', 'modle', 'status.colour' },
    vim.tbl_map(function(problem)
      return problem.key
    end, problems)
  )
  T.eq('vim.g.pi_ls.cmd: expected a list of strings, found "pi-ls"', problems[2].message)
  problems = select(
    2,
    resolve {
      model = 'm200',
      summary = 'maybe',
      windows = { tree = 'sideways 64', text = 'tab', prompt = '8', transcript = 'quit | vertical' },
    }
  )
  T.eq(
    { 'model', 'summary', 'windows.transcript', 'windows.tree' },
    vim.tbl_map(function(problem)
      return problem.key
    end, problems)
  )
  T.eq(
    'vim.g.pi_ls.windows.tree: expected modifiers and a size (see :split), found "sideways 64"',
    problems[4].message
  )
  config, problems = resolve(function()
    error('no such file')
  end)
  T.eq({ { 'pi-ls' }, 1 }, { config.cmd, #problems })
  T.ok(problems[1].message:match('^vim%.g%.pi_ls: the function failed: .*no such file'), problems[1].message)
  problems = select(2, resolve(7))
  T.eq(1, #problems)
  T.eq({ prefix = 'ctx', warning = 70, error = 90 }, resolve({ status = { prefix = 'ctx' } }).status)
end)

T.test('settings that are wrong are told', function()
  local options = vim.g.pi_ls
  vim.g.pi_ls = vim.tbl_extend('force', options, { settings = { compaction = { reserveTokens = 'many' } } })
  local pushed = T.count('PiLsSettingsProblem')
  vim.cmd('PiLs restart')
  T.message('compaction%.reserveTokens')
  T.wait('session', function()
    return status() ~= ''
  end)
  vim.cmd('PiLs reload')
  T.message('settings read, 1 problems')
  require('pi_ls.events').handle(pushed[1].client_id, 'settings_problem', vim.deepcopy(pushed[1].params))
  vim.wait(50)
  local told = vim.tbl_filter(function(message)
    return message:find('reserveTokens', 1, true)
  end, T.messages)
  T.eq(1, #told)
  T.ok(told[1]:match('^pi: compaction%.reserveTokens in initializationOptions'), told[1])
  vim.g.pi_ls = options
  vim.cmd('PiLs restart')
  T.wait('back', function()
    return status() == 'pi 10% (auto)'
  end)
end)

T.test('keys are shown whole in a narrow terminal, and no view is squeezed to a sliver', function()
  local columns = vim.o.columns
  vim.o.columns = 100
  vim.cmd('silent! only | PiLs transcript')
  vim.cmd('wincmd p | PiLs tree')
  for _, window in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    T.ok(vim.api.nvim_win_get_width(window) >= 20, vim.api.nvim_win_get_width(window))
  end
  vim.cmd('silent! only')
  vim.o.columns = 40
  T.ok(vim.wo.winbar:find('%<', 1, true), 'a long name is cut, not the hint')
  vim.api.nvim_feedkeys('g?', 'xt', false)
  local width = vim.api.nvim_win_get_width(0)
  T.ok(width <= 38, width)
  local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
  T.eq(#lines, vim.api.nvim_win_get_height(0))
  for _, text in ipairs(lines) do
    T.ok(vim.fn.strdisplaywidth(text) <= width, text)
  end
  T.ok(table.concat(lines, ' '):gsub('%s+', ' '):find('user-only, labeled-only, all', 1, true))
  vim.api.nvim_feedkeys('q', 'xt', false)
  vim.o.columns = columns
  vim.cmd.edit(two .. '/a.txt')
end)

T.test('what the server is told', function()
  vim.g.pi_ls = vim.tbl_extend('force', vim.g.pi_ls, {
    model = 'fake/m200',
    trusted = function(root)
      return root == one
    end,
  })
  T.eq(
    { approvals = 'notification', trusted = true, autoOpen = 'latest', model = 'fake/m200' },
    require('pi_ls.server').options(one)
  )
  T.eq(false, require('pi_ls.server').options(two).trusted)
end)

T.test('the home directory is no project for its ~/.pi', function()
  local home = vim.fs.normalize('~')
  vim.fn.mkdir(home .. '/.pi/agent', 'p')
  vim.fn.mkdir(home .. '/code/.pi', 'p')
  F.write(home .. '/notes.txt', 'x\n')
  F.write(home .. '/code/notes.txt', 'x\n')
  vim.cmd.edit(home .. '/code/notes.txt')
  T.eq(home .. '/code', require('pi_ls.server').root(0))
  vim.cmd.edit(home .. '/notes.txt')
  T.eq(vim.fs.normalize(vim.fn.getcwd()), require('pi_ls.server').root(0))
end)

T.test('checkhealth tells versions, options and the running server', function()
  vim.cmd.edit(two .. '/a.txt')
  vim.cmd('checkhealth pi_ls')
  local text = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n')
  for _, part in ipairs { 'OK version 0.', 'all are known', 'pi_ls: pi-ls 0.', 'client ', 'session ' } do
    T.ok(text:find(part, 1, true), part .. ' is missing in\n' .. text)
  end
  T.ok(not text:find('ERROR', 1, true), text)
  vim.cmd.close { bang = true }
end)

T.test('help has its tags', function()
  vim.cmd('helptags ' .. vim.fs.dirname(here) .. '/doc')
  for _, tag in ipairs { 'pi_ls', ':PiLs', ':PiLs-compact', 'pi_ls-config', 'hl-PiLsError' } do
    vim.cmd.help(tag)
    T.ok(vim.api.nvim_buf_get_name(0):match('pi_ls%.txt$'), tag)
    vim.cmd.helpclose()
  end
end)

T.test('every subcommand, option, event and highlight group stands in the help', function()
  local help = F.read(vim.fs.dirname(here) .. '/doc/pi_ls.txt')
  for name in pairs(require('pi_ls.commands').subcommands) do
    T.ok(help:find('*:PiLs-' .. name .. '*', 1, true), name)
  end
  for name in pairs(require('pi_ls.config').defaults) do
    T.ok(help:find('\n' .. name .. ' ', 1, true), name)
  end
  for _, event in ipairs(require('pi_ls.events').names()) do
    T.ok(help:find(require('pi_ls.events').pattern(event), 1, true), event)
  end
  local highlights = require('pi_ls.highlights')
  for group in pairs(vim.tbl_extend('error', highlights.links, highlights.badges)) do
    T.ok(help:find('*hl-' .. group .. '*', 1, true), group)
  end
end)

T.test('the help names nothing that is not there', function()
  local help = F.read(vim.fs.dirname(here) .. '/doc/pi_ls.txt')
  for name in help:gmatch('%*:PiLs%-(%S+)%*') do
    T.ok(require('pi_ls.commands').subcommands[name], name)
  end
  local highlights = require('pi_ls.highlights')
  for group in help:gmatch('hl%-(PiLs%w+)') do
    T.ok(highlights.links[group] or highlights.badges[group], group)
  end
  local events = { PiLsExit = true, PiLsLabel = true, PiLsSummarizing = true }
  for _, event in ipairs(require('pi_ls.events').names()) do
    events[require('pi_ls.events').pattern(event)] = true
  end
  for event in help:match('%*pi_ls%-events%*.-%*pi_ls%-highlights%*'):gmatch('PiLs%u%w*') do
    T.ok(events[event] or highlights.links[event], event)
  end
  local kinds = {}
  for path in vim.fs.dir(vim.fs.dirname(here) .. '/lua/pi_ls') do
    for kind in F.read(vim.fs.dirname(here) .. '/lua/pi_ls/' .. path):gmatch("kind = '(pi_ls_%w+)'") do
      kinds[kind] = true
    end
  end
  local named = {}
  for kind in help:gmatch('`(pi_ls_%w+)`') do
    named[kind] = true
  end
  T.eq(kinds, named)
end)

T.test('every <Plug> map runs a subcommand', function()
  local count = 0
  for _, map in ipairs(vim.api.nvim_get_keymap('n')) do
    local name = map.lhs:match('^<Plug>%(pi%-ls%-(.*)%)$')
    if name then
      count = count + 1
      T.ok(require('pi_ls.commands').subcommands[name], name)
    end
  end
  T.eq(11, count)
end)

T.test('a missing program is told once, in words, and by checkhealth', function()
  stop_all()
  package.loaded['pi_ls.server'] = nil -- as in a Neovim that has just started
  vim.lsp.config('pi_ls', { cmd = { '/nowhere/pi-ls' } })
  F.write(one .. '/new.py', 'pass\n')
  F.write(one .. '/newer.py', 'pass\n')
  vim.cmd.edit(one .. '/new.py')
  vim.cmd.edit(one .. '/newer.py')
  T.message('"/nowhere/pi%-ls" cannot be started')
  T.eq(1, #T.messages)
  local source = T.messages[1]:match('%(pip install (%S+)%)')
  T.ok(vim.uv.fs_stat(vim.fn.expand(source) .. '/pyproject.toml'), source)
  T.messages = {}
  vim.cmd('PiLs compact')
  T.message('pip install ' .. vim.pesc(source))
  vim.cmd('checkhealth pi_ls')
  local text = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n')
  T.ok(text:find('ERROR "/nowhere/pi-ls" cannot be started', 1, true), text)
  T.eq('', status())
end)

T.finish()
