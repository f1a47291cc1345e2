---Highlight groups, all with `default`: what a colour scheme or the user says about them wins.

local M = {}

---@type table<string, string> group → the one it is linked to
M.links = {
  PiLsNormal = 'StatusLine',
  PiLsWarning = 'DiagnosticWarn',
  PiLsError = 'DiagnosticError',
  PiLsBusy = 'DiagnosticInfo',
  PiLsPath = 'Special',
  PiLsLeaf = 'DiagnosticOk',
  PiLsOffPath = 'Comment',
  PiLsLabel = 'Title',
  PiLsDetail = 'NonText',
  PiLsUser = 'Title',
  PiLsAssistant = 'Function',
  PiLsTool = 'Type',
  PiLsSummary = 'Constant',
}

local defined = false

---Defines the groups, once, and again whenever a colour scheme has cleared them.
function M.define()
  if defined then
    return
  end
  defined = true
  local function link()
    for group, target in pairs(M.links) do
      vim.api.nvim_set_hl(0, group, { link = target, default = true })
    end
  end
  link()
  vim.api.nvim_create_autocmd('ColorScheme', {
    group = vim.api.nvim_create_augroup('pi_ls_highlights', {}),
    callback = link,
  })
end

return M
