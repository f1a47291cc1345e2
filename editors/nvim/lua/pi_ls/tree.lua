---The tree buffer `pi-ls://tree`: the path and its leaf in the sign column, branches as folds, labels beside.

local M = {}

local FILTERS = { 'default', 'no-tools', 'user-only', 'labeled-only', 'all' }
local REFRESH_MS = 100
local SLOWER = 2 -- pauses are at least this often as long as a reading
local TEXT_WIDTH = 100
local TEXT_CELLS = 36 -- of what is said where there is no tree
local KIND_WIDTH = 11
local TOKENS_WIDTH = 5 -- shown at the right edge, of folds too
local namespace = vim.api.nvim_create_namespace('pi_ls_tree')

---@class pi_ls.TreeView
---@field filter integer index in FILTERS
---@field rows pi_ls.Row[] one a line
---@field keys string[] what each line shows, as one text
---@field pending boolean a refresh is on its way
---@field reading integer the number of the reading that is on its way, or of the last
---@field loading? integer the server that is asked just now
---@field rest_until number when the next may begin by itself (ms of `vim.uv.now`)
---@field root? string the project it shows

---@type pi_ls.TreeView
local view = { filter = 1, rows = {}, keys = {}, pending = false, reading = 0, rest_until = 0 }

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
  local row = view.rows[vim.api.nvim_win_get_cursor(0)[1]]
  return row and row.node
end

---@param window integer
---@param note? string instead of the filter
local function name_window(window, note)
  local one = client()
  local session = require('pi_ls.state').current(one and one.id)
  local filter = FILTERS[view.filter]
  local shown = note or filter ~= 'default' and filter
  local title = require('pi_ls.state').title(session) .. (shown and (' · %s'):format(shown) or '')
  vim.wo[window].winbar = (' pi tree: %%<%s %%=g? keys '):format(title:gsub('%%', '%%%%'))
end

---@param window integer
---@param id? string default: the leaf
local function put_cursor(window, id)
  for index, row in ipairs(view.rows) do
    if row.node.id == id or not id and row.node.isLeaf then
      vim.api.nvim_win_set_cursor(window, { index, 0 })
      vim.api.nvim_win_call(window, function()
        vim.cmd.normal { 'zv', bang = true }
      end)
      return
    end
  end
end

---Everything a line shows, to tell whether it has changed.
---@param row pi_ls.Row
---@param line string
---@return string
local function key_of(row, line)
  local node = row.node
  local flags = (node.isLeaf and 'l' or '') .. (node.onPath and 'p' or '') .. (row.begins and 'b' or '')
  return table.concat({ node.id, flags, row.depth, node.tokens, node.label or '', line }, '\0')
end

---Shows the rows. Lines that are as they were are left alone, and with them folds and cursors.
---@param bufnr integer
---@param rows pi_ls.Row[]
local function put(bufnr, rows)
  local lines, starts, keys = {}, {}, {}
  for index, row in ipairs(rows) do
    lines[index], starts[index] = line_of(row.node, row.depth, row.begins)
    keys[index] = key_of(row, lines[index])
  end
  local old, same, tail = view.keys, 0, 0
  local most = math.min(#old, #keys)
  while same < most and old[same + 1] == keys[same + 1] do
    same = same + 1
  end
  while tail < most - same and old[#old - tail] == keys[#keys - tail] do
    tail = tail + 1
  end
  view.rows, view.keys = rows, keys
  local first, last = same, #keys - tail
  local old_last = #old == 0 and -1 or #old - tail
  vim.api.nvim_buf_clear_namespace(bufnr, namespace, first, old_last)
  require('pi_ls.view').set_lines(bufnr, first, old_last, vim.list_slice(lines, first + 1, last))
  for index = first + 1, last do
    decorate(bufnr, index - 1, rows[index].node, starts[index])
  end
end

---Says in the place of the tree why there is none.
---@param bufnr integer
---@param text string
local function put_text(bufnr, text)
  view.rows, view.keys = {}, {}
  vim.api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
  local views = require('pi_ls.view')
  views.set_lines(bufnr, 0, -1, views.wrapped(text, TEXT_CELLS))
end

---Where a window's cursor is, and where it belongs after the next reading.
---@param window? integer
---@return integer? line
---@return string? id nil: the leaf
local function place_of(window)
  if not window then
    return
  end
  local line = vim.api.nvim_win_get_cursor(window)[1]
  local row = view.rows[line]
  return line, row and not row.node.isLeaf and row.node.id or nil
end

---Reads the tree again and shows it. The cursor stays with its entry, or with the leaf.
---@param focus? string entry to put the cursor on
function M.refresh(focus)
  local views, one = require('pi_ls.view'), client()
  local bufnr = views.find('tree')
  if not one or not bufnr then
    return
  end
  view.reading = view.reading + 1
  view.loading = one.id
  local reading, begun = view.reading, vim.uv.now()
  local line, id = place_of(views.window(bufnr))
  local function shown()
    return reading == view.reading and vim.api.nvim_buf_is_valid(bufnr)
  end
  require('pi_ls.outline').fetch(one, { filter = FILTERS[view.filter] }, function(nodes, err)
    if not shown() then
      return
    end
    local now = vim.uv.now()
    view.loading, view.rest_until = nil, now + SLOWER * (now - begun)
    local window = views.window(bufnr)
    -- Whoever has moved on while it was read stays there.
    local stayed = window and vim.api.nvim_win_get_cursor(window)[1] == line
    if nodes and #nodes > 0 then
      put(bufnr, require('pi_ls.outline').arrange(nodes))
    else
      put_text(bufnr, err and require('pi_ls.client').explain(err) or '(nothing to show)')
    end
    if window then
      name_window(window)
      if focus or stayed then
        put_cursor(window, focus or id)
      end
    end
  end, function(nodes)
    if not shown() then
      return
    elseif #view.rows == 0 then
      put(bufnr, require('pi_ls.outline').arrange(nodes)) -- something to read while the rest comes
    end
    local window = views.window(bufnr)
    if window then
      name_window(window, ('%s entries …'):format(require('pi_ls.numbers').count(#nodes)))
    end
  end)
end

---Once, a moment after the first of several events; not before an earlier reading has ended, and with a large
---tree not so often that the server does nothing else.
local function refresh_soon()
  if view.pending then
    return
  end
  view.pending = true
  local function now()
    local one = client()
    if one and view.loading == one.id then
      vim.defer_fn(now, REFRESH_MS)
      return
    end
    view.pending = false
    local bufnr = require('pi_ls.view').find('tree')
    if bufnr and require('pi_ls.view').window(bufnr) then
      M.refresh()
    end
  end
  vim.defer_fn(now, math.max(REFRESH_MS, view.rest_until - vim.uv.now()))
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

---For 'foldexpr': one level for each branch beside the path.
---@param line integer
---@return string
function M.foldexpr(line)
  local row = view.rows[line]
  return row and (row.begins and '>' or '') .. row.depth or '0'
end

---A closed branch: its first line, how many entries there are, and its label, within the window's width.
---@return string
function M.foldtext()
  local count = vim.v.foldend - vim.v.foldstart + 1
  local row = view.rows[vim.v.foldstart]
  local line, start = line_of(row.node, row.depth, row.begins)
  local head = line:sub(1, start + KIND_WIDTH) .. (row.node.label and ('[%s] '):format(row.node.label) or '')
  local tail = count == 1 and '' or (' … %d entries'):format(count)
  local window = vim.api.nvim_get_current_win()
  local room = vim.api.nvim_win_get_width(window) - vim.fn.getwininfo(window)[1].textoff
  room = room - vim.fn.strdisplaywidth(head .. tail) - TOKENS_WIDTH
  local text = line:sub(start + KIND_WIDTH + 1)
  while vim.fn.strdisplaywidth(text) > math.max(room, 0) do
    text = vim.fn.strcharpart(text, 0, vim.fn.strchars(text) - 1)
  end
  return head .. text .. tail
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
    view.root, view.rows, view.keys = one.root_dir, {}, {}
  end
  local bufnr, window, is_new = require('pi_ls.view').open('tree', {
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
    foldlevel = 0,
    foldenable = true,
    fillchars = (vim.o.fillchars ~= '' and vim.o.fillchars .. ',' or '') .. 'fold: ',
  }
  for option, value in pairs(is_new and options or {}) do
    vim.api.nvim_set_option_value(option, value, { win = window, scope = 'local' })
  end
  watch()
  M.refresh()
end

return M
