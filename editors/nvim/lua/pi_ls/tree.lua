---The tree buffer `pi-ls://tree`: the path and its leaf in the sign column, branches as folds, labels beside.

local M = {}

local FILTERS = { 'default', 'no-tools', 'user-only', 'labeled-only', 'all' }
local REFRESH_MS = 100
local TEXT_WIDTH = 100
local KIND_WIDTH = 11
local namespace = vim.api.nvim_create_namespace('pi_ls_tree')

---@class pi_ls.TreeView
---@field filter integer index in FILTERS
---@field nodes pi_ls.Node[] one a line
---@field levels string[] fold level of each line
---@field pending boolean a refresh is on its way
---@field loading boolean pages are on their way
---@field root? string the project it shows

---@type pi_ls.TreeView
local view = { filter = 1, nodes = {}, levels = {}, pending = false, loading = false }

---@return vim.lsp.Client?
local function client()
  return require('pi_ls.view').client('tree')
end

---@param node pi_ls.Node
---@return string
local function sign_of(node)
  return node.isLeaf and '◆' or node.onPath and '●' or ' '
end

---@param node pi_ls.Node
---@return string
local function group_of(node)
  return node.isLeaf and 'PiLsLeaf' or node.onPath and 'PiLsPath' or 'PiLsOffPath'
end

---@param node pi_ls.Node
---@return string
local function kind_group(node)
  if node.type == 'compaction' or node.type == 'branch_summary' then
    return 'PiLsSummary'
  end
  local groups = { user = 'PiLsUser', assistant = 'PiLsAssistant', toolResult = 'PiLsTool' }
  return node.onPath and groups[node.role] or 'PiLsOffPath'
end

---@param node pi_ls.Node
---@param depth integer
---@param begins boolean
---@return string line
---@return integer where its text begins (bytes)
local function line_of(node, depth, begins)
  local rail = depth > 0 and ('│ '):rep(depth - 1) .. (begins and '├ ' or '│ ') or ''
  local kind = ('%-10s '):format(require('pi_ls.outline').kind(node))
  local text = vim.fn.strcharpart(node.text:gsub('%s+', ' '), 0, TEXT_WIDTH)
  return rail .. kind .. (node.orphan and '(orphan) ' or '') .. text, #rail
end

---@param bufnr integer
---@param row integer 0-based
---@param node pi_ls.Node
---@param start integer where the line's text begins
local function decorate(bufnr, row, node, start)
  local function mark(column, options)
    vim.api.nvim_buf_set_extmark(bufnr, namespace, row, column, options)
  end
  mark(0, {
    sign_text = sign_of(node),
    sign_hl_group = group_of(node),
    virt_text = { { ' ' .. require('pi_ls.numbers').short(node.tokens), 'PiLsDetail' } },
    virt_text_pos = 'right_align',
  })
  if node.label then
    mark(start + KIND_WIDTH, {
      virt_text = { { ('[%s] '):format(node.label), 'PiLsLabel' } },
      virt_text_pos = 'inline', -- before the text: it is seen however narrow the window
    })
  end
  if start > 0 then
    mark(0, { end_col = start, hl_group = 'PiLsDetail' })
  end
  mark(start, { end_col = start + KIND_WIDTH - 1, hl_group = kind_group(node) })
  if not node.onPath then
    mark(start + KIND_WIDTH, { end_row = row + 1, hl_group = 'PiLsOffPath' })
  end
end

---@return pi_ls.Node?
local function under_cursor()
  return view.nodes[vim.api.nvim_win_get_cursor(0)[1]]
end

---@param window integer
local function name_window(window)
  local one = client()
  local state = require('pi_ls.state').current(one and one.id)
  local name = state and (state.info.name or state.info.sessionId) or ''
  local filter = FILTERS[view.filter]
  local shown = filter == 'default' and '' or (' · %s'):format(filter)
  vim.wo[window].winbar = (' pi tree: %s%s  %%=g? keys '):format(name:gsub('%%', '%%%%'), shown)
end

---@param window integer
---@param id? string
local function put_cursor(window, id)
  for index, node in ipairs(view.nodes) do
    if node.id == id or not id and node.isLeaf then
      vim.api.nvim_win_set_cursor(window, { index, 0 })
      return
    end
  end
end

---Puts a page of nodes in the place of the lines that are there.
---@param bufnr integer
---@param first integer 0-based row
---@param nodes pi_ls.Node[]
---@param placer pi_ls.Placer
local function put_page(bufnr, first, nodes, placer)
  local lines, starts = {}, {}
  for index, node in ipairs(nodes) do
    local depth, begins = placer:place(node)
    lines[index], starts[index] = line_of(node, depth, begins)
    view.nodes[first + index] = node
    view.levels[first + index] = begins and ('>%d'):format(depth) or tostring(depth)
  end
  vim.api.nvim_buf_clear_namespace(bufnr, namespace, first, first + #lines)
  require('pi_ls.view').set_lines(bufnr, first, first + #lines, lines)
  for index, node in ipairs(nodes) do
    decorate(bufnr, first + index - 1, node, starts[index])
  end
end

---Takes away what is left of an earlier, longer tree.
---@param bufnr integer
---@param count integer
local function cut(bufnr, count)
  for index = #view.nodes, count + 1, -1 do
    view.nodes[index], view.levels[index] = nil, nil
  end
  vim.api.nvim_buf_clear_namespace(bufnr, namespace, count, -1)
  require('pi_ls.view').set_lines(bufnr, count, -1, count == 0 and { '(nothing to show)' } or {})
end

---Reads the tree again and shows it page by page.
---@param focus? string entry to put the cursor on; default: where it was, at first the leaf
function M.refresh(focus)
  local views, one = require('pi_ls.view'), client()
  local bufnr = views.find('tree')
  if not one or not bufnr then
    return
  end
  local is_first, count, placer = #view.nodes == 0, 0, require('pi_ls.outline').placer()
  local function on_page(nodes, is_last)
    if not vim.api.nvim_buf_is_valid(bufnr) then
      return
    end
    put_page(bufnr, count, nodes, placer)
    count = count + #nodes
    local window = views.window(bufnr)
    if is_last then
      cut(bufnr, count)
      view.loading = false
    end
    if window and is_last then
      name_window(window)
      if focus or is_first then
        put_cursor(window, focus)
      end
    end
  end
  view.loading = true
  require('pi_ls.outline').fetch(one, { filter = FILTERS[view.filter] }, on_page, function()
    view.loading = false
  end)
end

---Once, a moment after the first of several events, and not before an earlier reading has ended.
local function refresh_soon()
  if view.pending then
    return
  end
  view.pending = true
  local function now()
    if view.loading then
      vim.defer_fn(now, REFRESH_MS)
      return
    end
    view.pending = false
    local bufnr = require('pi_ls.view').find('tree')
    if bufnr and require('pi_ls.view').window(bufnr) then
      M.refresh()
    end
  end
  vim.defer_fn(now, REFRESH_MS)
end

---@param how? pi_ls.Navigation
local function go(how)
  local node, one = under_cursor(), client()
  if node and one then
    require('pi_ls.navigate').to(one, node.id, how)
  end
end

---Asks for a label of an entry and sets it; an empty one takes it away.
---@param one vim.lsp.Client
---@param entry_id string
---@param label? string nil: ask
---@param old? string
function M.label(one, entry_id, label, old)
  local function set(text)
    if text == nil then
      return
    end
    local arguments = { entryId = entry_id, label = text ~= '' and text or vim.NIL }
    require('pi_ls.client').command(one, 'pi.setLabel', arguments, function(err)
      if err then
        require('pi_ls.client').show_error(err)
        return
      end
      require('pi_ls.events').announce('PiLsLabel', { client_id = one.id, entryId = entry_id, label = text })
      refresh_soon()
    end)
  end
  if label then
    set(label)
  else
    vim.ui.input({ prompt = 'Label: ', default = old or '' }, set)
  end
end

---Shows the whole of an entry.
local function whole()
  local node, one = under_cursor(), client()
  if not node or not one then
    return
  end
  local arguments = { leafId = node.id, limit = 100000 }
  require('pi_ls.client').command(one, 'pi.getMessages', arguments, function(err, result)
    if err then
      require('pi_ls.client').show_error(err)
      return
    end
    for _, message in ipairs(result.messages) do
      if message.entryId == node.id then
        local lines = require('pi_ls.render').message(message)
        require('pi_ls.view').text('entry', one, lines)
        return
      end
    end
    require('pi_ls.notify').info('this entry has no message')
  end)
end

---@type pi_ls.Key[]
local KEYS = {
  { '<CR>', 'go here; asks about a summary', go },
  {
    's',
    'go here and summarize the branch left',
    function()
      go { summarize = true }
    end,
  },
  {
    'S',
    'go here without a summary',
    function()
      go { summarize = false }
    end,
  },
  { 'K', 'show the whole entry', whole },
  {
    'L',
    'label the entry',
    function()
      local node, one = under_cursor(), client()
      if node and one then
        M.label(one, node.id, nil, node.label)
      end
    end,
  },
  {
    'F',
    'fork: a new session from before this message',
    function()
      local node, one = under_cursor(), client()
      if node and one then
        require('pi_ls.sessions').fork(one, node.id)
      end
    end,
  },
  {
    'f',
    'next filter: default, no-tools, user-only, labeled-only, all',
    function()
      local node = under_cursor()
      view.filter = view.filter % #FILTERS + 1
      M.refresh(node and node.id)
    end,
  },
  {
    'Y',
    'yank the entry’s id',
    function()
      local node = under_cursor()
      if node then
        vim.fn.setreg(vim.v.register, node.id)
        require('pi_ls.notify').info(('yanked %s'):format(node.id))
      end
    end,
  },
  {
    'R',
    'read the tree again',
    function()
      M.refresh()
    end,
  },
}

---For 'foldexpr': one level for each real fork.
---@param line integer
---@return string
function M.foldexpr(line)
  return view.levels[line] or '0'
end

---@return string
function M.foldtext()
  local count = vim.v.foldend - vim.v.foldstart + 1
  return ('%s … %d entries'):format(vim.fn.getline(vim.v.foldstart), count)
end

local function watch()
  local group = vim.api.nvim_create_augroup('pi_ls_tree', {})
  vim.api.nvim_create_autocmd('User', {
    group = group,
    pattern = {
      'PiLsTree',
      'PiLsEntryAppended',
      'PiLsSessionOpened',
      'PiLsSessionReloaded',
      'PiLsCompactionEnd',
      'PiLsSessionInfoChanged',
    },
    callback = function(event)
      local one = client()
      if one and event.data.client_id == one.id then
        refresh_soon()
      end
    end,
  })
end

---@param one vim.lsp.Client
function M.open(one)
  if view.root ~= one.root_dir then
    view.root, view.nodes, view.levels = one.root_dir, {}, {}
  end
  local bufnr, window = require('pi_ls.view').open('tree', {
    client = one,
    filetype = 'pi_ls_tree',
    window = require('pi_ls.config').get().windows.tree,
    keys = KEYS,
  })
  vim.bo[bufnr].buflisted = false
  local options = {
    wrap = false,
    cursorline = true,
    signcolumn = 'yes:1',
    foldcolumn = '0',
    foldmethod = 'expr',
    foldexpr = "v:lua.require'pi_ls.tree'.foldexpr(v:lnum)",
    foldtext = "v:lua.require'pi_ls.tree'.foldtext()",
    foldlevel = 99,
    foldenable = true,
  }
  for option, value in pairs(options) do
    vim.api.nvim_set_option_value(option, value, { win = window, scope = 'local' })
  end
  watch()
  M.refresh()
end

return M
