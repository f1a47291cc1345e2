---The context meter for statuslines. Cheap: reads what is known, asks nobody.

local M = {}

---@class pi_ls.Status
---@field text string what `get` returns
---@field level 'normal'|'warning'|'error'|'busy'
---@field percent? number 0 to 100 and more, not rounded; nil when unknown
---@field tokens? number
---@field window? integer
---@field estimated boolean whether the figure is an estimate
---@field auto boolean whether automatic compaction is on
---@field paused boolean whether it is on and paused
---@field busy? string what is going on, in a word
---@field session? string the session's name, or its id
---@field usage pi_ls.Usage as the server told it

---@param session pi_ls.Session
---@param approvals integer
---@return string?
local function busy_with(session, approvals)
  if session.compacting then
    return 'compacting'
  elseif session.summarizing then
    return 'summarizing'
  elseif approvals > 0 then
    return 'asks'
  elseif session.retry then
    return ('retry %d/%d'):format(session.retry.attempt, session.retry.maxAttempts)
  elseif session.running then
    return 'working'
  end
end

---How full the context is, in a few characters; '' without a usable window.
---@param usage pi_ls.Usage
---@return string
function M.figure(usage)
  if not usage.contextWindow then
    return ''
  elseif not usage.tokens or not usage.percent then
    return '?'
  end
  local percent = math.floor(usage.percent + 0.5)
  return ('%s%d%%'):format(usage.source == 'measured' and '' or '~', percent)
end

---@param usage pi_ls.Usage
---@return string
local function automatic(usage)
  if not usage.contextWindow or not usage.autoCompactionEnabled then
    return ''
  end
  return usage.autoCompactionPaused and '(auto paused)' or '(auto)'
end

---@param usage pi_ls.Usage
---@param config pi_ls.Status.Config
---@return 'normal'|'warning'|'error'
local function level(usage, config)
  local percent = usage.contextWindow and usage.tokens and usage.percent or 0
  return percent >= config.error and 'error' or percent >= config.warning and 'warning' or 'normal'
end

---Everything the meter is made of; nil where no server runs or no session is open.
---@param bufnr? integer default: the current buffer
---@return pi_ls.Status?
function M.data(bufnr)
  if not package.loaded['pi_ls.state'] then
    return -- no server has been started
  end
  local client = require('pi_ls.client').get(bufnr)
  local state = require('pi_ls.state')
  local session = client and state.current(client.id)
  if not client or not session then
    return
  end
  local config = require('pi_ls.config').get().status
  local usage = session.usage or {}
  local busy = busy_with(session, #state.of(client.id).approvals)
  local replaces = busy == 'compacting' or busy == 'summarizing'
  local parts = { config.prefix, busy or '' }
  if not replaces then
    parts = { config.prefix, M.figure(usage), automatic(usage), busy or '' }
  end
  local text = table.concat(
    vim.tbl_filter(function(part)
      return part ~= ''
    end, parts),
    ' '
  )
  return {
    text = text ~= config.prefix and text or '',
    level = replaces and 'busy' or level(usage, config),
    percent = usage.percent,
    tokens = usage.tokens,
    window = usage.contextWindow,
    estimated = usage.source ~= nil and usage.source ~= 'measured',
    auto = usage.autoCompactionEnabled == true,
    paused = usage.autoCompactionPaused == true,
    busy = busy,
    session = session.info.name or session.id,
    usage = usage,
  }
end

---The meter: `pi 64% (auto)`, `pi ~64%`, `pi ?`, `pi compacting`; '' where there is nothing to show.
---@param options? { escape?: boolean, bufnr?: integer } escape: `%` doubled, for lualine and `%{%…%}`
---@return string
function M.get(options)
  options = options or {}
  local data = M.data(options.bufnr)
  local text = data and data.text or ''
  return options.escape and (text:gsub('%%', '%%%%')) or text
end

local GROUPS = { normal = 'PiLsNormal', warning = 'PiLsWarning', error = 'PiLsError', busy = 'PiLsBusy' }

---The highlight group that fits the meter.
---@param bufnr? integer
---@return string
function M.color(bufnr)
  local data = M.data(bufnr)
  return data and GROUPS[data.level] or 'PiLsNormal'
end

---The meter in its colour, for `%{%v:lua.require'pi_ls.status'.statusline()%}`.
---@return string
function M.statusline()
  local text = M.get { escape = true }
  local group = M.color()
  if text == '' or group == 'PiLsNormal' then
    return text
  end
  return ('%%#%s#%s%%*'):format(group, text)
end

return M
