---How the server is started: what `lsp/pi_ls.lua` returns.

local M = {}

---The project a buffer belongs to: the nearest directory with a marker, else where Neovim works.
---
---`~/.pi` holds pi's own files and makes the home directory no project. The plugin's own buffers know theirs.
---@param bufnr integer
---@return string
function M.root(bufnr)
  if vim.b[bufnr].pi_ls_root then
    return vim.b[bufnr].pi_ls_root
  end
  local markers = require('pi_ls.config').get().root_markers
  local home = vim.fs.normalize('~')
  local root = vim.fs.root(bufnr, function(name, path)
    return vim.tbl_contains(markers, name) and not (name == '.pi' and path == home)
  end)
  return root or vim.fs.normalize(vim.fn.getcwd())
end

---@param root? string
---@return table initializationOptions
function M.options(root)
  local config = require('pi_ls.config').get()
  local trusted = config.trusted
  if type(trusted) == 'function' then
    trusted = trusted(root or vim.fn.getcwd()) == true
  end
  return {
    approvals = 'notification',
    trusted = trusted,
    autoOpen = config.auto_open,
    agentDir = config.agent_dir,
    sessionDir = config.session_dir,
    model = config.model,
    tokenEstimator = config.token_estimator,
    settings = next(config.settings) and config.settings or nil,
  }
end

---The server's command line where it is one and its program cannot be started, else nil.
---@return string[]?
function M.missing()
  local config = vim.lsp.config.pi_ls
  local cmd = config and config.cmd
  if type(cmd) == 'table' and vim.fn.executable(cmd[1]) == 0 then
    return cmd
  end
end

local checked = false

---Neovim only writes to its log when a server's program is missing; this tells the user, once.
---Asking for the configuration may make it anew, and so come back here: hence the flag goes up first.
local function tell_if_missing()
  if checked then
    return
  end
  checked = true
  vim.schedule(function()
    local cmd = M.missing()
    if cmd then
      require('pi_ls.notify').warn(M.how_to_install(cmd))
    end
  end)
end

---The checkout this plugin lies in, which holds the server too; nil where it was put elsewhere.
---@return string?
local function checkout()
  local plugin = vim.fs.dirname(debug.getinfo(1, 'S').source:sub(2)) .. '/../..'
  local root = vim.fs.normalize(vim.fs.abspath(plugin .. '/../..'))
  return vim.uv.fs_stat(root .. '/pi_ls/server') and vim.uv.fs_stat(root .. '/pyproject.toml') and root or nil
end

---@param cmd string[]
---@return string
function M.how_to_install(cmd)
  return ('"%s" cannot be started. Install the server (pip install %s), or set vim.g.pi_ls.cmd.'):format(
    cmd[1],
    vim.fn.fnamemodify(checkout() or 'its checkout', ':~')
  )
end

---@return vim.lsp.Config
function M.config()
  tell_if_missing()
  return {
    cmd = require('pi_ls.config').get().cmd,
    root_dir = function(bufnr, on_dir)
      on_dir(M.root(bufnr))
    end,
    handlers = require('pi_ls.events').handlers(),
    before_init = function(params, config)
      local ours = M.options(config.root_dir)
      params.initializationOptions = vim.tbl_deep_extend('force', ours, config.init_options or {})
    end,
    on_init = function(client)
      require('pi_ls.state').add(client)
      require('pi_ls.client').ready(client)
    end,
    on_exit = function(code, signal, client_id)
      vim.schedule(function()
        require('pi_ls.client').gone(client_id, code, signal)
      end)
    end,
  }
end

return M
