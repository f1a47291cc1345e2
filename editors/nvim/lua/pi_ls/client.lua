---The only module that talks to the server: finds or starts it, sends commands, shows its errors.
---
---A request that was cancelled calls back to nobody: Neovim drops its answer.

local M = {}

local NAME = 'pi_ls'
local STOP_TIMEOUT_MS = 6000
local STOP_POLL_MS = 20

---@alias pi_ls.Callback fun(err?: lsp.ResponseError, result?: any)

local waiting = {} ---@type table<integer, fun(client?: vim.lsp.Client)[]>
local stopping = {} ---@type table<integer, true>

---The running server a buffer means: the one it shows something of, the one attached to it, the one of its
---project. A buffer that is no file (a terminal, a help page) means the only one there is.
---@param bufnr? integer
---@return vim.lsp.Client?
function M.get(bufnr)
  if not bufnr or bufnr == 0 then
    bufnr = vim.api.nvim_get_current_buf()
  end
  local shown = vim.b[bufnr].pi_ls_client
  local client = shown and vim.lsp.get_client_by_id(shown)
  if client and not client:is_stopped() then
    return client
  end
  client = vim.lsp.get_clients({ name = NAME, bufnr = bufnr })[1]
  if client then
    return client
  end
  local all = vim.lsp.get_clients { name = NAME }
  local is_anywhere = vim.bo[bufnr].buftype ~= '' and not vim.b[bufnr].pi_ls_root
  if #all == 0 or #all == 1 and is_anywhere then
    return all[1]
  end
  local root = require('pi_ls.server').root(bufnr)
  for _, one in ipairs(all) do
    if one.root_dir == root then
      return one
    end
  end
end

---@param client vim.lsp.Client
---@param callback fun(client?: vim.lsp.Client)
local function when_ready(client, callback)
  if client.initialized then
    callback(client)
  else
    waiting[client.id] = waiting[client.id] or {}
    table.insert(waiting[client.id], callback)
  end
end

---@param bufnr integer
---@return vim.lsp.Client?
local function start(bufnr)
  local server = require('pi_ls.server')
  local cmd = server.missing()
  if cmd then
    require('pi_ls.notify').error(server.how_to_install(cmd))
    return
  end
  local config = vim.deepcopy(vim.lsp.config[NAME])
  local root = config.root_dir
  if type(root) == 'function' then
    root(bufnr, function(directory)
      config.root_dir = directory
    end)
  end
  local id = vim.lsp.start(config, {
    bufnr = bufnr,
    attach = vim.bo[bufnr].buftype == '' and vim.api.nvim_buf_get_name(bufnr) ~= '',
    reuse_client = config.reuse_client,
  })
  return id and vim.lsp.get_client_by_id(id) or nil
end

---Calls back with the server for a buffer, which is started if none runs; says so if it cannot be.
---@param bufnr? integer
---@param callback fun(client: vim.lsp.Client)
function M.ensure(bufnr, callback)
  bufnr = bufnr or vim.api.nvim_get_current_buf()
  local starting = vim.lsp.get_clients({ name = NAME, bufnr = bufnr, _uninitialized = true })[1]
  local client = M.get(bufnr) or starting or start(bufnr)
  if client then
    when_ready(client, function(ready)
      if ready then
        callback(ready)
      end
    end)
  end
end

---For `on_init`: those who waited go on.
---@param client vim.lsp.Client
function M.ready(client)
  local callbacks = waiting[client.id] or {}
  waiting[client.id] = nil
  for _, callback in ipairs(callbacks) do
    vim.schedule(function()
      callback(client)
    end)
  end
end

---For `on_exit`: forgets the server, and says so if nobody asked it to leave.
---@param client_id integer
---@param code integer
---@param signal integer
function M.gone(client_id, code, signal)
  require('pi_ls.state').remove(client_id)
  local callbacks = waiting[client_id] or {}
  waiting[client_id] = nil
  for _, callback in ipairs(callbacks) do
    callback(nil)
  end
  if not stopping[client_id] and (code ~= 0 or signal ~= 0) and vim.v.exiting == vim.NIL then
    local how = signal ~= 0 and ('signal %d'):format(signal) or ('exit code %d'):format(code)
    require('pi_ls.notify').error(
      ('the server ended (%s). :PiLs restart starts it again, :PiLs log tells why.'):format(how)
    )
  end
  stopping[client_id] = nil
  require('pi_ls.events').announce('PiLsExit', { client_id = client_id, code = code, signal = signal })
end

local NO_SESSION = 'no session here. :PiLs new begins one, :PiLs sessions lists them.'

---What helps against an error, by its kind.
local REMEDIES = {
  NoModel = ':PiLs model chooses one',
  Untrusted = ':PiLs trust changes that',
}

---@param err lsp.ResponseError
---@return string a sentence for a person
function M.explain(err)
  if type(err.message) ~= 'string' then
    return vim.inspect(err)
  end
  local kind = type(err.data) == 'table' and err.data.kind
  if kind == 'NoSession' then
    return NO_SESSION -- short, for whoever tries everything at first: no prompt to press ENTER
  end
  local message, home = vim.trim(err.message), vim.fs.normalize('~')
  if home ~= '/' then
    message = message:gsub(vim.pesc(home .. '/'), '~/')
  end
  local remedy = REMEDIES[kind]
  return remedy and ('%s. %s.'):format(message:gsub('%.$', ''), remedy) or message
end

---Sends a command. `callback` gets the error or the result; without one, errors are shown.
---@param client vim.lsp.Client
---@param command string
---@param arguments? table
---@param callback? pi_ls.Callback
---@return integer? id for `client:cancel_request`
function M.command(client, command, arguments, callback)
  local argument = arguments and next(arguments) and arguments or vim.empty_dict()
  local params = { command = command, arguments = { argument } }
  local plain = require('pi_ls.wire').plain
  local sent, id = client:request('workspace/executeCommand', params, function(err, result)
    err = plain(err)
    if callback then
      callback(err, plain(result))
    elseif err then
      M.show_error(err)
    end
  end)
  if not sent then
    require('pi_ls.notify').error('the server is not running any more; :PiLs restart starts it again.')
  end
  return id
end

---@param err lsp.ResponseError
function M.show_error(err)
  require('pi_ls.notify').error(M.explain(err))
end

---Asks and waits, for completion; nil where there is no answer in time.
---@param command string
---@param arguments? table
---@param timeout_ms integer
---@return any
function M.ask(command, arguments, timeout_ms)
  local client = M.get()
  if not client then
    return
  end
  local params = { command = command, arguments = { arguments or vim.empty_dict() } }
  local answer = client:request_sync('workspace/executeCommand', params, timeout_ms)
  return answer and not answer.err and require('pi_ls.wire').plain(answer.result) or nil
end

---Attaches a new server to the buffers of its project that are open already.
---@param client vim.lsp.Client
local function attach_open_buffers(client)
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    local is_file = vim.api.nvim_buf_is_loaded(bufnr) and vim.bo[bufnr].buftype == ''
    if is_file and vim.api.nvim_buf_get_name(bufnr) ~= '' then
      if require('pi_ls.server').root(bufnr) == client.root_dir then
        vim.lsp.buf_attach_client(bufnr, client.id)
      end
    end
  end
end

---Stops the server of the current buffer and starts it anew, with the same buffers and the same session.
function M.restart()
  local bufnr = vim.api.nvim_get_current_buf()
  local old = M.get(bufnr)
  local session = require('pi_ls.state').current(old and old.id)
  local function again()
    local new = start(bufnr)
    if not new then
      return
    end
    attach_open_buffers(new)
    when_ready(new, function(client)
      if client and session and session.info.sessionFile then
        M.command(client, 'pi.openSession', { path = session.info.sessionFile }, function() end)
      end
    end)
  end
  if not old then
    again()
    return
  end
  stopping[old.id] = true
  old:stop()
  local deadline = vim.uv.now() + STOP_TIMEOUT_MS
  local function wait()
    if not vim.lsp.get_client_by_id(old.id) then
      again()
    elseif vim.uv.now() > deadline then
      old:stop(true)
      again()
    else
      vim.defer_fn(wait, STOP_POLL_MS)
    end
  end
  wait()
end

return M
