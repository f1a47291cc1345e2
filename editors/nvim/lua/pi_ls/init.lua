---Everything works without calling anything here: options are in `vim.g.pi_ls`, commands under `:PiLs`.

local M = {}

---For plugin managers that call it: the same as setting `vim.g.pi_ls` and enabling the server.
---@param options? pi_ls.Config
function M.setup(options)
  if options then
    vim.g.pi_ls = options
  end
  vim.lsp.enable('pi_ls')
end

return M
