---What comes over the wire as plain Lua.

local M = {}

---Takes every JSON null out of a value, in place: which Neovim leaves as `vim.NIL` depends on its version.
---@generic T
---@param value T
---@return T?
function M.plain(value)
  if value == vim.NIL then
    return nil
  end
  if type(value) == 'table' then
    for key, item in pairs(value) do
      value[key] = M.plain(item)
    end
  end
  return value
end

return M
