---Buffers whose files the agent has changed: read again if they are unmodified, never otherwise.

local M = {}

local CHANGES = { edit = true, write = true }
local before = {} ---@type table<string, { path: string, time?: string }> by tool call

---@param path string
---@return string?
local function time_of(path)
  local stat = vim.uv.fs_stat(path)
  return stat and ('%d.%d'):format(stat.mtime.sec, stat.mtime.nsec) or nil
end

---@param bufnr integer
local function read_again(bufnr)
  local autoread = vim.bo[bufnr].autoread
  vim.bo[bufnr].autoread = true
  vim.cmd.checktime { args = { tostring(bufnr) } }
  vim.bo[bufnr].autoread = autoread
end

---Whether a buffer shows a file below `root` and may be read again.
---@param bufnr integer
---@param root string
---@return boolean
local function is_ours(bufnr, root)
  local name = vim.api.nvim_buf_get_name(bufnr)
  return vim.api.nvim_buf_is_loaded(bufnr)
    and vim.bo[bufnr].buftype == ''
    and name ~= ''
    and vim.fs.relpath(root, vim.fs.normalize(name)) ~= nil
end

---After a run: every unmodified buffer of the project, for what shell commands have changed.
---@param client_id integer
function M.all(client_id)
  local instance = require('pi_ls.state').of(client_id)
  local root = instance and instance.root
  for _, bufnr in ipairs(root and vim.api.nvim_list_bufs() or {}) do
    if
      is_ours(bufnr, root --[[@as string]]) and not vim.bo[bufnr].modified
    then
      read_again(bufnr)
    end
  end
end

---@param client_id integer
---@param params table of `pi/tool_execution_start`
function M.before(client_id, params)
  local instance = require('pi_ls.state').of(client_id)
  local path = CHANGES[params.toolName] and type(params.args) == 'table' and params.args.path
  if instance and type(path) == 'string' then
    path = require('pi_ls.files').locate(path, instance.root)
    before[params.toolCallId] = { path = path, time = time_of(path) }
  end
end

---@param _ integer
---@param params table of `pi/tool_execution_end`
function M.after(_, params)
  local touched = before[params.toolCallId]
  before[params.toolCallId] = nil
  if not touched or touched.time == time_of(touched.path) then
    return -- nothing on the disk has changed: the edit, if any, is in the buffer
  end
  local bufnr = require('pi_ls.files').buffer(touched.path)
  if not bufnr then
    return
  elseif vim.bo[bufnr].modified then
    local name = vim.fn.fnamemodify(touched.path, ':.')
    require('pi_ls.notify').warn(
      ('%s was changed on the disk, and has unsaved changes here: it was not read again'):format(name)
    )
  else
    read_again(bufnr)
  end
end

return M
