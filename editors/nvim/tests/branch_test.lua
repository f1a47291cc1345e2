-- The tree and moving in it, over the real server.
local here = vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, 'S').source:sub(2)))
local T, F = dofile(here .. '/t.lua'), dofile(here .. '/fixture.lua')
F.models()
F.offline()
local root = F.project('app')
local file = F.branched(root)
local moves = T.count('PiLsTree')

local function leaf()
  local client = require('pi_ls.client').get()
  local session = client and require('pi_ls.state').current(client.id)
  return session and session.info.leafId
end

local function tree_lines()
  local bufnr = require('pi_ls.view').find('tree')
  return bufnr and vim.api.nvim_buf_get_lines(bufnr, 0, -1, false) or {}
end

local function signs()
  local bufnr = require('pi_ls.view').find('tree')
  local shown = {}
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(bufnr, -1, 0, -1, { details = true })) do
    if mark[4].sign_text then
      shown[mark[2] + 1] = vim.trim(mark[4].sign_text)
    end
  end
  return shown
end

local function on_line(pattern)
  for number, text in ipairs(tree_lines()) do
    if text:find(pattern, 1, true) then
      vim.api.nvim_win_set_cursor(0, { number, 0 })
      return
    end
  end
  error('no line has ' .. pattern)
end

local function press(keys)
  vim.api.nvim_feedkeys(vim.keycode(keys), 'xt', false)
end

T.test('the tree: path and leaf as signs, folds only where the talk forks', function()
  vim.cmd.edit(root .. '/a.txt')
  T.wait('session', leaf)
  vim.cmd('PiLs tree')
  T.wait('six lines', function()
    return #tree_lines() == 6
  end)
  local lines = tree_lines()
  T.ok(lines[1]:match('^user       Fix the parser'), lines[1])
  T.ok(lines[2]:match('^assistant  I fixed'), lines[2])
  T.ok(lines[3]:match('^├ user       '), lines[3])
  T.ok(lines[4]:match('^│ assistant  '), lines[4])
  T.eq({ '>1', '1' }, { require('pi_ls.tree').foldexpr(3), require('pi_ls.tree').foldexpr(4) })
  local by_text = {}
  for number, text in ipairs(lines) do
    by_text[text:match('Fix the p') or text:match('Try the o') or text:match('tests pass') or ''] =
      signs()[number]
  end
  T.eq('●', by_text['Fix the p'])
  T.eq('', by_text['Try the o'])
  T.eq('◆', by_text['tests pass'])
  T.ok(vim.wo.winbar:find('s-1', 1, true), vim.wo.winbar)
  T.ok(vim.api.nvim_get_current_line():find('tests pass', 1, true), 'the cursor is at the leaf')
end)

T.test('what forks off stands folded beside the path, which stays flat and whole', function()
  on_line('Try the other')
  local line = vim.fn.line('.')
  T.eq({ line, line + 1 }, { vim.fn.foldclosed(line), vim.fn.foldclosedend(line) })
  local text = vim.fn.foldtextresult(line)
  T.ok(text:find('Try the other way', 1, true) and text:find('2 entries', 1, true), text)
  T.ok(vim.fn.strdisplaywidth(text) < vim.api.nvim_win_get_width(0), text)
  T.eq('0', require('pi_ls.tree').foldexpr(line + 2))
  T.ok(tree_lines()[line + 2]:match('^user       Now the tests'), tree_lines()[line + 2])
end)

T.test('folds open and close a branch', function()
  on_line('Try the other')
  vim.cmd('normal! zo')
  local line = vim.fn.line('.')
  T.eq(-1, vim.fn.foldclosed(line))
  vim.cmd('PiLs tree')
  T.eq(-1, vim.fn.foldclosed(line)) -- coming back closes nothing
  vim.cmd('normal! zc')
  T.eq(line, vim.fn.foldclosed(line))
  T.eq(line + 1, vim.fn.foldclosedend(line))
  vim.cmd('normal! zR')
end)

T.test('choosing where one already is does nothing', function()
  on_line('tests pass')
  press('<CR>')
  T.message('already there')
  T.eq(0, #moves)
end)

T.test('closing the question moves nothing', function()
  on_line('slower')
  local seen = T.choose(nil)
  press('<CR>')
  T.wait('asked', function()
    return seen.shown
  end)
  T.eq(3, #seen.shown)
  T.eq('No summary', seen.shown[1])
  vim.wait(200)
  T.eq({ 'a2', 0 }, { leaf(), #moves })
end)

T.test('without a summary', function()
  on_line('slower')
  T.choose('No summary')
  press('<CR>')
  T.wait('moved', function()
    return leaf() == 'a3'
  end)
  T.message('Back: :PiLs branch %-')
  T.eq(1, #moves)
  T.wait('the tree follows', function()
    local shown = signs()
    for number, text in ipairs(tree_lines()) do
      if text:find('slower', 1, true) then
        return shown[number] == '◆'
      end
    end
  end)
  T.eq(nil, F.read(file):find('branch_summary', 1, true))
end)

T.test('and back again, without a question', function()
  vim.ui.select = function()
    error('asked')
  end
  vim.cmd('PiLs branch -')
  T.wait('back', function()
    return leaf() == 'a2'
  end)
end)

T.test('with a summary of own instructions', function()
  on_line('slower')
  T.choose('instructions')
  T.type('KIWI')
  press('<CR>')
  T.message('moved, with a summary')
  T.ok(F.read(file):find('"type":"branch_summary"', 1, true))
  T.eq(false, require('pi_ls.status').data().busy == 'summarizing')
end)

T.test(
  'the quick choice: other branches, then one’s own messages, which come back into the prompt',
  function()
    local seen = T.choose('before: Fix the parser')
    local question = vim.ui.select
    vim.ui.select = function(items, options, on_choice)
      if options.kind == 'pi_ls_summary' then
        on_choice(items[1])
      else
        question(items, options, on_choice)
      end
    end
    vim.cmd('PiLs branch')
    local prompt = T.wait('prompt', function()
      return require('pi_ls.view').find('prompt')
    end)
    T.ok(seen.shown[1]:match('^go to: '), seen.shown[1])
    T.ok(vim.api.nvim_buf_get_lines(prompt, 0, 1, false)[1]:match('^Fix the parser'))
    T.eq(nil, leaf())
    vim.cmd('PiLs branch a2')
    T.wait('back', function()
      return leaf() == 'a2'
    end)
  end
)

T.test('a label from the tree shows beside its entry; an empty one goes away', function()
  vim.cmd('PiLs tree')
  on_line('slower')
  T.type('dead end')
  press('L')
  local function label()
    local bufnr = require('pi_ls.view').find('tree')
    for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(bufnr, -1, 0, -1, { details = true })) do
      local text = mark[4].virt_text
      if text and text[1][2] == 'PiLsLabel' then
        return vim.trim(text[1][1])
      end
    end
  end
  T.wait('label', function()
    return label() == '[dead end]'
  end)
  on_line('slower')
  T.type('')
  press('L')
  T.wait('no label', function()
    return label() == nil
  end)
end)

T.test('filters, whole entries, ids, keys', function()
  press('f')
  press('f')
  T.wait('only user messages', function()
    local lines = tree_lines()
    for _, text in ipairs(lines) do
      if text:find('assistant', 1, true) then
        return false
      end
    end
    return #lines > 0
  end)
  T.ok(vim.wo.winbar:find('user-only', 1, true))
  on_line('Try the other')
  press('Y')
  T.eq('u3', vim.fn.getreg('"'))
  press('K')
  local entry = T.wait('entry', function()
    return require('pi_ls.view').find('entry')
  end)
  T.eq({ '# You', '', 'Try the other way', '' }, vim.api.nvim_buf_get_lines(entry, 0, -1, false))
  press('q')
  press('g?')
  local keys = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n')
  T.ok(keys:find('go here', 1, true), vim.api.nvim_buf_get_name(0) .. keys)
  press('q')
end)

T.test('a talk that forked many times is as flat as one that never did', function()
  local nodes, parent = {}, nil
  local function add(id, on_path, children)
    table.insert(nodes, {
      id = id,
      parentId = parent,
      onPath = on_path,
      childCount = children,
      type = 'message',
      role = 'user',
      text = id,
      tokens = 1,
    })
  end
  for turn = 1, 300 do
    add('p' .. turn, true, 2)
    parent = 'p' .. turn
    add('b' .. turn, false, 0)
  end
  add('end', true, 0)
  local rows = require('pi_ls.outline').arrange(nodes)
  T.eq(601, #rows)
  for _, row in ipairs(rows) do
    local beside = row.node.id:sub(1, 1) == 'b'
    T.eq({ beside and 1 or 0, beside }, { row.depth, row.begins })
  end
  for _, node in ipairs(nodes) do
    node.onPath = false -- the same branch, left: still flat, by what hangs on it
  end
  nodes[1].onPath = true
  for _, row in ipairs(require('pi_ls.outline').arrange(nodes)) do
    T.ok(row.depth < 2, row.node.id)
  end
end)

T.test('a branch that comes after the path in the file stands beside the entry it left', function()
  local function node(id, parent, on_path)
    return { id = id, parentId = parent, onPath = on_path }
  end
  local rows = require('pi_ls.outline').arrange {
    node('a', nil, true),
    node('b', 'a', true),
    node('c', 'b', true),
    node('x', 'a', false),
    node('y', 'x', false),
  }
  T.eq(
    { 'a0', 'x1', 'y1', 'b0', 'c0' },
    vim.tbl_map(function(row)
      return row.node.id .. row.depth
    end, rows)
  )
end)

T.test('nothing is asked where nothing is left behind', function()
  T.choose('No summary')
  vim.cmd('PiLs branch a2')
  T.wait('at the end', function()
    return leaf() == 'a2'
  end)
  vim.cmd('PiLs branch a1')
  T.wait('moved up', function()
    return leaf() == 'a1'
  end)
  vim.ui.select = function()
    error('asked')
  end
  vim.cmd('PiLs branch a2')
  T.wait('moved down', function()
    return leaf() == 'a2'
  end)
end)

T.test('the option “summary” answers the question', function()
  vim.ui.select = function()
    error('asked')
  end
  local options = vim.g.pi_ls
  vim.g.pi_ls = vim.tbl_extend('force', options, { summary = 'none' })
  vim.cmd('PiLs branch a3')
  T.wait('moved', function()
    return leaf() == 'a3'
  end)
  vim.g.pi_ls = vim.tbl_extend('force', options, { summary = 'summarize' })
  vim.cmd('PiLs branch a2')
  T.message('moved, with a summary')
  vim.g.pi_ls = options
  T.choose('No summary')
  vim.cmd('PiLs branch a2')
  T.wait('back', function()
    return leaf() == 'a2'
  end)
end)

T.test('the cursor stays with its entry when the tree changes above it, and with the leaf', function()
  vim.cmd('PiLs tree')
  press('fff') -- round to the default
  T.wait('the whole tree', function()
    return vim.iter(tree_lines()):any(function(text)
      return text:find('tests pass', 1, true)
    end)
  end)
  local function at(pattern)
    return function()
      return vim.api.nvim_get_current_line():find(pattern, 1, true)
    end
  end
  vim.cmd('normal! zR')
  on_line('tests pass')
  local line = vim.fn.line('.')
  on_line('Now the tests')
  require('pi_ls.client').command(require('pi_ls.client').get(), 'pi.navigateTree', { targetId = 'a3' })
  T.wait('the branches change places', function()
    return leaf() == 'a3' and not tree_lines()[line]:find('tests pass', 1, true)
  end)
  T.ok(at('Now the tests')(), vim.api.nvim_get_current_line())
  on_line('slower')
  require('pi_ls.client').command(require('pi_ls.client').get(), 'pi.navigateTree', { targetId = 'a2' })
  T.wait('the cursor goes along with the leaf', at('tests pass'))
end)

T.test('branchSummary.enabled puts the summary first, skipPrompt asks nothing', function()
  F.settings { compaction = { models = { 'offline/extractive' } }, branchSummary = { enabled = true } }
  local seen = T.choose(nil)
  vim.cmd('PiLs branch a1')
  T.wait('asked', function()
    return seen.shown
  end)
  T.ok(seen.shown[1]:match('^Summarize'), seen.shown[1])
  F.settings { compaction = { models = { 'offline/extractive' } }, branchSummary = { skipPrompt = true } }
  vim.ui.select = function()
    error('asked')
  end
  vim.cmd('PiLs branch a1')
  T.wait('moved', function()
    return leaf() == 'a1'
  end)
end)

T.test('an entry that is not there is an error in words', function()
  vim.cmd('PiLs branch nowhere')
  T.message('nowhere')
end)

T.finish()
