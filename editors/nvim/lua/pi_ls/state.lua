---What is known of each running server: its sessions, how full they are, what they are doing.
---
---Written by `events.lua` alone; everything that shows something reads it from here.

---@class pi_ls.Usage the fields of `pi/context_usage`; empty without a usable window
---@field tokens? number nil after a compaction, until the next answer
---@field percent? number
---@field contextWindow? integer
---@field estimatedTokens? number
---@field source? 'measured'|'measured+estimate'|'estimate'
---@field thresholdTokens? integer
---@field autoCompactionEnabled? boolean
---@field autoCompactionPaused? boolean
---@field cost? number

---@class pi_ls.Session
---@field id string
---@field info table the server's session state, as last told
---@field usage? pi_ls.Usage
---@field running boolean the agent is at work
---@field compacting? 'manual'|'threshold'|'overflow' why, while a compaction runs
---@field summarizing boolean a branch is being summarized
---@field retry? { attempt: integer, maxAttempts: integer }
---@field queued integer prompts that wait
---@field previous_leaf? string where the session was before it last moved

---@class pi_ls.Approval
---@field approvalId string
---@field toolName string
---@field args table
---@field summary string
---@field sessionId? string

---@class pi_ls.Instance
---@field client_id integer
---@field root? string
---@field sessions table<string, pi_ls.Session>
---@field current? string id of the session commands mean
---@field approvals pi_ls.Approval[] oldest first
---@field problems table[] what was told about files and settings, each once; `times` says how often

local M = {}

local TITLE_LENGTH = 13
local instances = {} ---@type table<integer, pi_ls.Instance>

---@param client vim.lsp.Client
---@return pi_ls.Instance
function M.add(client)
  instances[client.id] = instances[client.id]
    or {
      client_id = client.id,
      root = client.root_dir,
      sessions = {},
      approvals = {},
      problems = {},
    }
  return instances[client.id]
end

---@param client_id integer
function M.remove(client_id)
  instances[client_id] = nil
end

---@param client_id? integer
---@return pi_ls.Instance?
function M.of(client_id)
  return client_id and instances[client_id] or nil
end

---@param instance pi_ls.Instance
---@param id string
---@return pi_ls.Session
function M.session(instance, id)
  instance.sessions[id] = instance.sessions[id]
    or {
      id = id,
      info = {},
      running = false,
      summarizing = false,
      queued = 0,
    }
  return instance.sessions[id]
end

---What a session is called: by its name, else by the beginning of its id.
---@param session? pi_ls.Session
---@return string
function M.title(session)
  if not session then
    return 'no session'
  end
  local name = vim.trim(session.info.name or '')
  if name ~= '' then
    return name
  end
  return session.info.messageCount == 0 and 'new session' or session.id:sub(1, TITLE_LENGTH)
end

---The session that commands without a session mean.
---@param client_id? integer
---@return pi_ls.Session?
function M.current(client_id)
  local instance = M.of(client_id)
  return instance and instance.current and instance.sessions[instance.current] or nil
end

return M
