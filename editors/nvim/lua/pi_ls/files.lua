---Files by the names the agent gives them.

local M = {}

---A path as the agent means it, absolute.
---@param path string relative to the project, or absolute
---@param root? string
---@return string
function M.locate(path, root)
  local is_absolute = path:sub(1, 1) == '/' or path:match('^%a:')
  return vim.fs.normalize(is_absolute and path or (root or vim.fn.getcwd()) .. '/' .. path)
end

---The loaded buffer of a file.
---@param path string absolute
---@return integer?
function M.buffer(path)
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    local is_file = vim.api.nvim_buf_is_loaded(bufnr) and vim.bo[bufnr].buftype == ''
    if is_file and vim.fs.normalize(vim.api.nvim_buf_get_name(bufnr)) == path then
      return bufnr
    end
  end
end

return M
