---What the server pushes: into the state, and out again as `User` autocommands.
---
---A notification `pi/compaction_start` becomes `User PiLsCompactionStart` with
---`data = { client_id, event, params }`. Two have shorter names: `PiLsUsage` and `PiLsTree`.

local M = {}

local SHORT = { context_usage = 'PiLsUsage', session_tree = 'PiLsTree' }

---@alias pi_ls.Apply fun(session: pi_ls.Session, params: table, instance: pi_ls.Instance)

---@param fields string[]
---@return pi_ls.Apply
local function info(fields)
  return function(session, params)
    for _, field in ipairs(fields) do
      session.info[field] = params[field]
    end
  end
end

---@type pi_ls.Apply
local function nothing() end

---@type pi_ls.Apply
local function problem(_, params, instance)
  for _, known in ipairs(instance.problems) do
    if known.file == params.file and known.message == params.message and known.error == params.error then
      known.times = known.times + 1
      return
    end
  end
  table.insert(instance.problems, vim.tbl_extend('force', params, { times = 1 }))
end

---@type table<string, pi_ls.Apply> what an event changes in what is known of its session
local APPLY = {
  session_opened = function(session, params, instance)
    session.info = params
    session.running = params.operation == 'run'
    session.compacting = params.operation == 'compaction' and (session.compacting or 'manual') or nil
    instance.current = session.id
  end,
  session_closed = function(session, _, instance)
    instance.sessions[session.id] = nil
    if instance.current == session.id then
      instance.current = nil
    end
  end,
  session_info_changed = info { 'name' },
  session_tree = function(session, params)
    session.info.leafId = params.newLeafId
    session.previous_leaf = params.oldLeafId
  end,
  entry_appended = info { 'leafId' },
  session_reloaded = nothing,
  context_usage = function(session, params)
    session.usage = params
  end,
  auto_compaction_paused = nothing,
  auto_compaction_resumed = nothing,
  compaction_start = function(session, params)
    session.compacting = params.reason
  end,
  compaction_end = function(session)
    session.compacting = nil
  end,
  session_compact_failed = nothing,
  agent_start = function(session)
    session.running = true
  end,
  agent_end = nothing,
  agent_settled = function(session)
    session.running, session.retry = false, nil
  end,
  turn_start = nothing,
  turn_end = nothing,
  message_start = nothing,
  message_update = nothing,
  message_end = nothing,
  tool_execution_start = nothing,
  tool_execution_update = nothing,
  tool_execution_end = nothing,
  queue_update = function(session, params)
    session.queued = #(params.steering or {}) + #(params.followUp or {})
  end,
  auto_retry_start = function(session, params)
    session.retry = { attempt = params.attempt, maxAttempts = params.maxAttempts }
  end,
  auto_retry_end = function(session)
    session.retry = nil
  end,
  summarization_retry_scheduled = nothing,
  model_changed = function(session, params)
    session.info.model = params.provider and { provider = params.provider, id = params.modelId } or nil
  end,
  thinking_level_changed = function(session, params)
    session.info.thinkingLevel = params.level
  end,
  trust_changed = info { 'trusted' },
  approval_request = function(_, params, instance)
    table.insert(instance.approvals, params)
  end,
  approval_resolved = function(_, params, instance)
    instance.approvals = vim.tbl_filter(function(one)
      return one.approvalId ~= params.approvalId
    end, instance.approvals)
  end,
  session_problem = problem,
  settings_problem = problem,
  extension_error = problem,
}

---The autocommand pattern of an event.
---@param event string
---@return string
function M.pattern(event)
  return SHORT[event] or 'PiLs' .. ('_' .. event):gsub('_(%l)', string.upper)
end

---Every event's name, sorted.
---@return string[]
function M.names()
  local names = vim.tbl_keys(APPLY)
  table.sort(names)
  return names
end

---Tells the user's autocommands, then has statuslines drawn again.
---@param pattern string
---@param data table
function M.announce(pattern, data)
  vim.api.nvim_exec_autocmds('User', { pattern = pattern, modeline = false, data = data })
  vim.cmd.redrawstatus { bang = true }
end

---What must happen whether or not something is shown.
---@type table<string, fun(client_id: integer, params: table)>
local ACT = {
  session_opened = function(client_id, params)
    require('pi_ls.highlights').define()
    require('pi_ls.client').command(
      assert(vim.lsp.get_client_by_id(client_id)),
      'pi.contextUsage',
      { sessionId = params.sessionId },
      function(err, usage)
        local instance = require('pi_ls.state').of(client_id)
        local session = instance and instance.sessions[params.sessionId]
        if not err and session and not session.usage then
          M.handle(client_id, 'context_usage', vim.tbl_extend('force', usage, { sessionId = session.id }))
        end
      end
    )
  end,
  approval_request = function(client_id)
    require('pi_ls.approval').next(client_id)
  end,
  approval_resolved = function(client_id, params)
    require('pi_ls.approval').resolved(client_id, params.approvalId)
  end,
  tool_execution_start = function(client_id, params)
    require('pi_ls.reload').before(client_id, params)
  end,
  tool_execution_end = function(client_id, params)
    require('pi_ls.reload').after(client_id, params)
  end,
  agent_settled = function(client_id)
    require('pi_ls.reload').all(client_id)
  end,
  agent_end = function(_, params)
    if params.errorMessage then
      require('pi_ls.notify').error(params.errorMessage)
    end
  end,
  compaction_end = function(_, params)
    if params.errorMessage and params.reason ~= 'manual' then
      require('pi_ls.notify').warn(params.errorMessage)
    end
  end,
  auto_compaction_paused = function(_, params)
    require('pi_ls.notify').warn(params.message)
  end,
  settings_problem = function(client_id, params)
    for _, known in ipairs(require('pi_ls.state').of(client_id).problems) do
      if known.file == params.file and known.message == params.message and known.times == 1 then
        local named = not params.file or params.message:find(params.file, 1, true)
        require('pi_ls.notify').warn(named and params.message or params.file .. ': ' .. params.message)
      end
    end
  end,
}

---Takes in one event. A plain function: tests and other plugins may call it with an event of their own.
---@param client_id integer
---@param event string
---@param params table
function M.handle(client_id, event, params)
  local state = require('pi_ls.state')
  local client = vim.lsp.get_client_by_id(client_id)
  local instance = state.of(client_id) or client and state.add(client)
  if not instance then
    return -- a last word of a server that is gone
  end
  local session = params.sessionId and state.session(instance, params.sessionId)
    or { id = '', info = {}, running = false, summarizing = false, queued = 0 }
  APPLY[event](session, params, instance)
  if ACT[event] then
    ACT[event](client_id, params)
  end
  M.announce(M.pattern(event), { client_id = client_id, event = event, params = params })
end

---The handlers of the client's configuration, one for each notification.
---@return table<string, lsp.Handler>
function M.handlers()
  local handlers = {}
  for event in pairs(APPLY) do
    handlers['pi/' .. event] = function(_, params, context)
      M.handle(context.client_id, event, require('pi_ls.wire').plain(params))
    end
  end
  return handlers
end

return M
