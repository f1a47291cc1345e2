---The user's options: defaults, and what is wrong with what was given.
---
---The defaults are the documentation; `:help pi_ls-config` says the same in sentences.

---@class pi_ls.Status.Config
---@field prefix string text before the figure
---@field warning number percent from which the meter has `PiLsWarning`
---@field error number percent from which the meter has `PiLsError`

---@class pi_ls.Windows.Config
---@field tree string how the tree's window is opened: command modifiers and size, as for `:split`
---@field transcript string the same for the transcript
---@field prompt string the same for the prompt
---@field text string the same for previews and reports

---@class pi_ls.Config
---@field cmd string[] the server's command line
---@field root_markers string[] names that make a directory a project
---@field trusted boolean|fun(root: string): boolean whether the project's own settings may be read
---@field auto_open 'latest'|'none' whether the newest session of a project is opened at start
---@field agent_dir? string instead of `~/.pi/agent`
---@field session_dir? string instead of `sessions` in the agent directory
---@field model? string `provider/id`, for sessions that name none
---@field token_estimator? 'tiktoken'|'chars'
---@field summary 'ask'|'none'|'summarize' what happens to a branch that is left
---@field settings table pi's settings; they win over its files
---@field status pi_ls.Status.Config
---@field windows pi_ls.Windows.Config

---@class pi_ls.Problem
---@field key string the option, with dots
---@field message string a sentence

local M = {}

---@type pi_ls.Config
M.defaults = {
  cmd = { 'pi-ls' },
  root_markers = { '.pi', '.git' },
  trusted = false,
  auto_open = 'latest',
  agent_dir = nil,
  session_dir = nil,
  model = nil,
  token_estimator = nil,
  summary = 'ask',
  settings = {},
  status = { prefix = 'pi', warning = 70, error = 90 },
  windows = {
    tree = 'botright vertical 64',
    transcript = 'botright vertical',
    prompt = 'botright 8',
    text = 'botright 16',
  },
}

---Checks one value; returns what was expected if it is something else.
---@alias pi_ls.Check fun(value: any): string?

---@param kind type
---@return pi_ls.Check
local function a(kind)
  return function(value)
    return type(value) ~= kind and kind or nil
  end
end

---@param ... string
---@return pi_ls.Check
local function one_of(...)
  local allowed = { ... }
  return function(value)
    return not vim.tbl_contains(allowed, value) and '"' .. table.concat(allowed, '" or "') .. '"' or nil
  end
end

---@type pi_ls.Check
local function strings(value)
  if not vim.islist(value) or #value == 0 then
    return 'a list of strings'
  end
  for _, item in ipairs(value) do
    if type(item) ~= 'string' then
      return 'a list of strings'
    end
  end
end

---@type pi_ls.Check
local function percent(value)
  return not (type(value) == 'number' and value >= 0 and value <= 1000) and 'a percentage' or nil
end

---@type pi_ls.Check
local function boolean_or_function(value)
  return type(value) ~= 'boolean' and type(value) ~= 'function' and 'boolean or function' or nil
end

---@type pi_ls.Check
local function model(value)
  return not (type(value) == 'string' and value:match('^[^/]+/.')) and 'provider/id' or nil
end

---The command that opens a window, of modifiers and a size.
---@param how string
---@return string
function M.split_command(how)
  local modifiers, size = how:match('^%s*(.-)%s*(%d*)%s*$')
  return vim.trim(('%s %ssplit'):format(modifiers, size))
end

---@type pi_ls.Check
local function window(value)
  if type(value) == 'string' then
    local ok, parsed = pcall(vim.api.nvim_parse_cmd, M.split_command(value), {})
    if ok and parsed.cmd == 'split' then
      return
    end
  end
  return 'modifiers and a size (see :split)'
end

---A check for every option; a table is a group of options.
local CHECKS = {
  cmd = strings,
  root_markers = strings,
  trusted = boolean_or_function,
  auto_open = one_of('latest', 'none'),
  agent_dir = a('string'),
  session_dir = a('string'),
  model = model,
  token_estimator = one_of('tiktoken', 'chars'),
  summary = one_of('ask', 'none', 'summarize'),
  settings = a('table'),
  status = { prefix = a('string'), warning = percent, error = percent },
  windows = { tree = window, transcript = window, prompt = window, text = window },
}

---Takes what is right of `given` over the defaults, and notes the rest.
---@param given table
---@param checks table
---@param defaults table
---@param prefix string
---@param problems pi_ls.Problem[]
---@return table
local function merge(given, checks, defaults, prefix, problems)
  local merged = vim.deepcopy(defaults)
  for key, value in vim.spairs(given) do
    local check, name = checks[key], prefix .. tostring(key)
    local problem ---@type string?
    if check == nil then
      problem = 'there is no such option'
    elseif type(check) == 'table' then
      if type(value) == 'table' then
        merged[key] = merge(value, check, defaults[key], name .. '.', problems)
      else
        problem = ('expected table, found %s'):format(vim.inspect(value))
      end
    else
      local expected = check(value)
      if expected then
        problem = ('expected %s, found %s'):format(expected, vim.inspect(value))
      else
        merged[key] = value
      end
    end
    if problem then
      table.insert(problems, { key = name, message = ('vim.g.pi_ls.%s: %s'):format(name, problem) })
    end
  end
  return merged
end

---The options to use, and what could not be used of `given`.
---@param given any the value of `vim.g.pi_ls`: a table, a function that returns one, or nil
---@return pi_ls.Config
---@return pi_ls.Problem[]
function M.resolve(given)
  if type(given) == 'function' then
    local ok, value = pcall(given)
    if not ok then
      local message = ('vim.g.pi_ls: the function failed: %s'):format(value)
      return vim.deepcopy(M.defaults), { { key = '', message = message } }
    end
    given = value
  end
  if given ~= nil and type(given) ~= 'table' then
    local message = ('vim.g.pi_ls: expected table or function, found %s'):format(vim.inspect(given))
    return vim.deepcopy(M.defaults), { { key = '', message = message } }
  end
  local problems = {} ---@type pi_ls.Problem[]
  return merge(given or {}, CHECKS, M.defaults, '', problems), problems
end

local told = {} ---@type table<string, true>

---The options as they are now; each problem is shown once.
---@return pi_ls.Config
function M.get()
  local config, problems = M.resolve(vim.g.pi_ls)
  for _, problem in ipairs(problems) do
    if not told[problem.message] then
      told[problem.message] = true
      require('pi_ls.notify').warn(problem.message)
    end
  end
  return config
end

return M
