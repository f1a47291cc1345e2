---Messages as lines of Markdown. Plain functions: a message in, lines out.

local M = {}

local RESULT_LINES = 20
local CALL_WIDTH = 80

---@param text string
---@return string[]
local function lines_of(text)
  return require('pi_ls.view').lines((text:gsub('%s+$', '')))
end

---@param into string[]
---@param text string
---@param prefix? string
local function add(into, text, prefix)
  for _, line in ipairs(lines_of(text)) do
    table.insert(into, (prefix or '') .. line)
  end
end

---Text blocks of a content, joined; images by a word.
---@param content string|table[]|nil
---@return string
function M.text_of(content)
  if type(content) == 'string' then
    return content
  end
  local parts = {}
  for _, block in ipairs(type(content) == 'table' and content or {}) do
    if block.type == 'text' then
      table.insert(parts, block.text or '')
    elseif block.type == 'image' then
      table.insert(parts, '[image]')
    end
  end
  return table.concat(parts, '\n')
end

---What a tool is called with, in one line.
---@param name string
---@param arguments any
---@return string
function M.call(name, arguments)
  local shown = ''
  if type(arguments) == 'table' then
    shown = arguments.path or arguments.command or arguments.pattern or ''
    if shown == '' and next(arguments) then
      shown = vim.json.encode(arguments)
    end
  elseif type(arguments) == 'string' then
    shown = arguments
  end
  local first = vim.fn.strcharpart(tostring(shown):match('^[^\n]*'), 0, CALL_WIDTH)
  if #first < #tostring(shown) then
    first = first .. ' …'
  end
  return ('▸ %s %s'):format(name, first):gsub('%s+$', '')
end

---@param text string
---@param limit? integer lines
---@return string[]
function M.fenced(text, limit)
  local all = lines_of(text)
  local fence = '```'
  while text:find(fence, 1, true) do
    fence = fence .. '`'
  end
  local shown = { fence }
  for index = 1, math.min(#all, limit or #all) do
    table.insert(shown, all[index])
  end
  if limit and #all > limit then
    table.insert(shown, ('… %d more lines'):format(#all - limit))
  end
  table.insert(shown, fence)
  return shown
end

---@param into string[]
---@param content string|table[]|nil
local function add_blocks(into, content)
  if type(content) == 'string' then
    content = { { type = 'text', text = content } }
  end
  for _, block in ipairs(type(content) == 'table' and content or {}) do
    if into[#into] ~= '' then
      table.insert(into, '')
    end
    if block.type == 'text' then
      add(into, block.text or '')
    elseif block.type == 'thinking' then
      add(into, block.thinking or '', '> ')
    elseif block.type == 'toolCall' then
      table.insert(into, (M.call(block.name or '?', block.arguments)))
    elseif block.type == 'image' then
      table.insert(into, '[image]')
    end
  end
end

---@type table<string, fun(message: table): string[]>
local ROLES = {
  user = function(message)
    local lines = { '# You', '' }
    add(lines, M.text_of(message.content))
    return lines
  end,
  assistant = function(message)
    local lines = { message.model and ('# pi · %s'):format(message.model) or '# pi', '' }
    add_blocks(lines, message.content)
    if message.stopReason == 'aborted' then
      vim.list_extend(lines, { '', '*stopped*' })
    elseif message.stopReason == 'error' then
      vim.list_extend(lines, { '' })
      add(lines, ('**Error:** %s'):format(message.errorMessage or 'unknown'))
    end
    return lines
  end,
  toolResult = function(message)
    local mark = message.isError and '✗' or '✓'
    local lines = { ('%s %s'):format(mark, message.toolName or 'tool') }
    return vim.list_extend(lines, M.fenced(M.text_of(message.content), RESULT_LINES))
  end,
  bashExecution = function(message)
    local lines = { '# You ran', '', ('`%s`'):format(message.command or '') }
    vim.list_extend(lines, M.fenced(message.output or '', RESULT_LINES))
    if message.exitCode and message.exitCode ~= 0 then
      table.insert(lines, ('exit code %d'):format(message.exitCode))
    end
    return lines
  end,
  compactionSummary = function(message)
    local lines = { '# Summary of what came before', '' }
    add(lines, message.summary or '')
    return lines
  end,
  branchSummary = function(message)
    local lines = { '# Summary of a branch that was left', '' }
    add(lines, message.summary or '')
    return lines
  end,
}

---A message as lines, an empty one at the end.
---@param message table
---@return string[]
function M.message(message)
  local render = ROLES[message.role]
  local lines ---@type string[]
  if render then
    lines = render(message)
  else
    lines = { ('# %s'):format(message.customType or message.role or 'message'), '' }
    add(lines, M.text_of(message.content))
  end
  if message.truncated then
    table.insert(lines, '… cut here; K in :PiLs tree shows the whole')
  end
  table.insert(lines, '')
  return lines
end

return M
