---`:checkhealth pi_ls`: why nothing happens.

local M = {}

local function check_neovim()
  vim.health.start('Neovim')
  local version = tostring(vim.version())
  if vim.fn.has('nvim-0.11') == 1 then
    vim.health.ok(('version %s'):format(version))
  else
    vim.health.error(('version %s is too old; 0.11 or newer is needed'):format(version))
  end
  if not vim.lsp.is_enabled or vim.lsp.is_enabled('pi_ls') then
    vim.health.ok('the server is enabled')
  else
    vim.health.warn('the server is not enabled; it starts with the first :PiLs command only', {
      "vim.lsp.enable('pi_ls')",
    })
  end
  if vim.o.autoread then
    vim.health.ok("'autoread' is on")
  else
    vim.health.warn(
      "'autoread' is off: files that shell commands change outside of the agent's runs are not read again"
    )
  end
end

local function check_options()
  vim.health.start('Options (vim.g.pi_ls)')
  local _, problems = require('pi_ls.config').resolve(vim.g.pi_ls)
  for _, problem in ipairs(problems) do
    vim.health.error(problem.message, ':help pi_ls-config')
  end
  if #problems == 0 then
    vim.health.ok('all are known and well-formed')
  end
end

---The version a server program tells, or what went wrong.
---@param cmd string[]
---@return boolean ok
---@return string
local function version_of(cmd)
  local call = vim.list_extend(vim.list_slice(cmd), { '--version' })
  local ok, process = pcall(vim.system, call, { text = true, timeout = 10000 })
  if not ok then
    return false, tostring(process)
  end
  local result = process:wait()
  return result.code == 0, vim.trim((result.stdout or '') .. (result.stderr or ''))
end

local function check_program()
  vim.health.start('Server')
  local config = vim.lsp.config.pi_ls
  local cmd = config and config.cmd
  if type(cmd) ~= 'table' then
    vim.health.info('the server is started by a function or connection of your own')
    return
  end
  if vim.fn.executable(cmd[1]) == 0 then
    vim.health.error(require('pi_ls.server').how_to_install(cmd))
    return
  end
  local ok, version = version_of(cmd)
  local shown = table.concat(cmd, ' ')
  if ok then
    vim.health.ok(('%s: %s'):format(shown, version))
  else
    vim.health.error(('%s does not work: %s'):format(shown, version))
  end
end

local function check_running()
  vim.health.start('Running')
  local clients = vim.lsp.get_clients { name = 'pi_ls' }
  if #clients == 0 then
    vim.health.info('no server runs now')
  end
  for _, client in ipairs(clients) do
    vim.health.ok(('client %d for %s'):format(client.id, client.root_dir or 'no project'))
    local session = require('pi_ls.state').current(client.id)
    vim.health.info(session and ('session %s'):format(session.info.sessionFile or session.id) or 'no session')
    local instance = require('pi_ls.state').of(client.id)
    for _, problem in ipairs(instance and instance.problems or {}) do
      vim.health.warn(
        ('%s: %s'):format(problem.file or problem.extension or '', problem.message or problem.error)
      )
    end
  end
end

function M.check()
  check_neovim()
  check_options()
  check_program()
  check_running()
end

return M
