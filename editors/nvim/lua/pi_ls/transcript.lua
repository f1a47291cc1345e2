---The conversation in `pi-ls://session`: what is in the context, and what is being said just now.
---
---The buffer has two parts: settled lines above, and a tail (the answer being written, tools at work)
---that is drawn anew as events come.

local M = {}

local DRAW_MS = 40
local RELOAD_MS = 100
local NOTHING = '(nothing has been said yet)'

---@class pi_ls.TranscriptView
---@field root? string the project it shows
---@field settled integer number of settled lines
---@field live? table the assistant message being written
---@field tools table<string, table> tools at work, by call id
---@field order string[] their call ids
---@field note string what stands there where nothing else does
---@field drawing boolean
---@field reloading boolean

---@type pi_ls.TranscriptView
local view = { settled = 0, tools = {}, order = {}, note = '', drawing = false, reloading = false }

---@return integer?
local function buffer()
  return require('pi_ls.view').find('session')
end

---@return vim.lsp.Client?
local function shown_client()
  return require('pi_ls.view').client('session')
end

---@return pi_ls.Session?
local function current()
  local client = shown_client()
  return require('pi_ls.state').current(client and client.id)
end

---Changes lines; windows whose cursor was at the end stay at the end.
---@param first integer
---@param lines string[]
local function put(first, lines)
  local bufnr = buffer()
  if not bufnr then
    return
  end
  local last = vim.api.nvim_buf_line_count(bufnr)
  local follow = vim.tbl_filter(function(window)
    return vim.api.nvim_win_get_cursor(window)[1] >= last
  end, vim.fn.win_findbuf(bufnr))
  require('pi_ls.view').set_lines(bufnr, first, -1, lines)
  for _, window in ipairs(follow) do
    vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(bufnr), 0 })
  end
end

---@return string[]
local function tail()
  local render = require('pi_ls.render')
  local lines = view.live and render.message(view.live) or {}
  for _, id in ipairs(view.order) do
    local tool = view.tools[id]
    table.insert(lines, render.call(tool.toolName, tool.args) .. ' … running')
    local text = tool.partialResult and render.text_of(tool.partialResult.content) or ''
    if text ~= '' then
      vim.list_extend(lines, render.fenced(text, 10))
    end
    table.insert(lines, '')
  end
  return view.settled == 0 and #lines == 0 and { view.note } or lines
end

local function draw_tail()
  put(view.settled, tail())
end

local function draw_soon()
  if view.drawing then
    return
  end
  view.drawing = true
  vim.defer_fn(function()
    if view.drawing then
      view.drawing = false
      draw_tail()
    end
  end, DRAW_MS)
end

---@param message table
local function settle(message)
  local lines = require('pi_ls.render').message(message)
  view.drawing = false
  put(view.settled, lines)
  view.settled = view.settled + #lines
  draw_tail()
end

local function name_windows()
  local name = require('pi_ls.state').title(current())
  for _, window in ipairs(vim.fn.win_findbuf(buffer() or -1)) do
    vim.wo[window].winbar = (' pi: %%<%s %%=g? keys '):format(name:gsub('%%', '%%%%'))
  end
end

---Reads the whole context again.
function M.reload()
  local client = shown_client()
  if not client then
    return
  end
  local lines = {}
  local function page(cursor)
    require('pi_ls.client').command(client, 'pi.getMessages', { cursor = cursor }, function(err, result)
      local kind = err and type(err.data) == 'table' and err.data.kind
      if err and kind ~= 'NoSession' then
        require('pi_ls.client').show_error(err)
        return
      end
      for _, message in ipairs(result and result.messages or {}) do
        vim.list_extend(lines, require('pi_ls.render').message(message))
      end
      if result and result.hasMore and result.cursor then
        page(result.cursor)
        return
      end
      view.note = err and require('pi_ls.client').explain(err) or NOTHING
      put(0, lines)
      view.settled = #lines
      draw_tail()
      name_windows()
    end)
  end
  page(nil)
end

local function reload_soon()
  if view.reloading then
    return
  end
  view.reloading = true
  vim.defer_fn(function()
    view.reloading = false
    M.reload()
  end, RELOAD_MS)
end

---@param delta table `assistantMessageEvent` of `pi/message_update`
local function add_delta(delta)
  view.live = view.live or { role = 'assistant', content = {} }
  local content = view.live.content
  local index = (delta.contentIndex or 0) + 1
  for filler = #content + 1, index do
    content[filler] = { type = 'text', text = '' }
  end
  local block = content[index]
  if delta.type == 'thinking_delta' then
    content[index] = { type = 'thinking', thinking = (block.thinking or '') .. delta.delta }
  elseif delta.type == 'toolcall_delta' then
    content[index] = {
      type = 'toolCall',
      name = delta.toolName or block.name,
      arguments = (block.arguments or '') .. (delta.delta or ''),
    }
  elseif delta.type == 'text_delta' then
    content[index] = { type = 'text', text = (block.text or '') .. delta.delta }
  end
end

---@type table<string, fun(params: table)>
local ON = {
  message_start = function(params)
    if params.message.role == 'assistant' then
      view.live = vim.deepcopy(params.message)
      view.live.content = type(view.live.content) == 'table' and view.live.content or {}
      draw_soon()
    end
  end,
  message_update = function(params)
    add_delta(params.assistantMessageEvent or {})
    draw_soon()
  end,
  message_end = function(params)
    if params.message.role == 'assistant' then
      view.live = nil
    end
    settle(params.message)
  end,
  tool_execution_start = function(params)
    view.tools[params.toolCallId] = params
    table.insert(view.order, params.toolCallId)
    draw_soon()
  end,
  tool_execution_update = function(params)
    if view.tools[params.toolCallId] then
      view.tools[params.toolCallId] = params
      draw_soon()
    end
  end,
  tool_execution_end = function(params)
    view.tools[params.toolCallId] = nil
    view.order = vim.tbl_filter(function(id)
      return id ~= params.toolCallId
    end, view.order)
    draw_soon()
  end,
  agent_settled = function()
    view.live, view.tools, view.order = nil, {}, {}
    draw_soon()
  end,
  entry_appended = function(params)
    if params.foreign then
      reload_soon()
    end
  end,
  session_tree = reload_soon,
  session_reloaded = reload_soon,
  compaction_end = function(params)
    if params.result then
      reload_soon()
    end
  end,
  session_opened = function()
    view.live, view.tools, view.order = nil, {}, {}
    reload_soon()
  end,
  session_info_changed = name_windows,
}

local function watch()
  local patterns = {}
  for event in pairs(ON) do
    table.insert(patterns, require('pi_ls.events').pattern(event))
  end
  vim.api.nvim_create_autocmd('User', {
    group = vim.api.nvim_create_augroup('pi_ls_transcript', {}),
    pattern = patterns,
    callback = function(event)
      local client, session = shown_client(), current()
      local params = event.data.params or {}
      local is_current = not params.sessionId or not session or params.sessionId == session.id
      if client and event.data.client_id == client.id and is_current then
        ON[event.data.event](params)
      end
    end,
  })
end

---@param client vim.lsp.Client
---@param enter? boolean default true
function M.open(client, enter)
  local is_same = buffer() ~= nil and view.root == client.root_dir
  view.root = client.root_dir
  local bufnr, window, is_new = require('pi_ls.view').open('session', {
    client = client,
    filetype = 'pi_ls_session',
    markdown = true,
    window = require('pi_ls.config').get().windows.transcript,
    enter = enter,
    keys = {
      {
        'i',
        'write a prompt',
        function()
          require('pi_ls.prompt').open(shown_client() or client)
        end,
      },
      { 'R', 'read the conversation again', M.reload },
      {
        '<C-c>',
        'stop what runs',
        function()
          require('pi_ls.client').command(shown_client() or client, 'pi.abort')
        end,
      },
    },
  })
  vim.bo[bufnr].buflisted = false
  vim.wo[window].wrap, vim.wo[window].linebreak = true, true
  if is_new then
    vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(bufnr), 0 })
  end
  if not is_same then
    view.live, view.tools, view.order, view.settled = nil, {}, {}, 0
    watch()
    M.reload()
  end
  name_windows()
end

return M
