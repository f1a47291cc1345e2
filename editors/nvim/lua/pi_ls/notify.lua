---Sentences for the user. Every message of the plugin goes through here, under one name.

local M = {}

---@param message string
---@param level integer
local function show(message, level)
  vim.schedule(function()
    vim.notify('pi: ' .. message, level, { title = 'pi_ls' })
  end)
end

---@param message string
function M.info(message)
  show(message, vim.log.levels.INFO)
end

---@param message string
function M.warn(message)
  show(message, vim.log.levels.WARN)
end

---@param message string
function M.error(message)
  show(message, vim.log.levels.ERROR)
end

return M
