---Highlight groups, all with `default`: what a colour scheme or the user says about them wins.

local M = {}

---@type table<string, string> group → the one it is linked to
M.links = {
  PiLsNormal = 'StatusLine',
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

---@type table<string, string> groups in statuslines → the one whose colour is their background
M.badges = {
  PiLsWarning = 'DiagnosticWarn',
  PiLsError = 'DiagnosticError',
  PiLsBusy = 'DiagnosticInfo',
}

---A statusline may be light or dark in either kind of scheme; a badge of its own can be read on both.
---@param of string
---@return vim.api.keyset.highlight
local function badge(of)
  local text = vim.api.nvim_get_hl(0, { name = 'Normal', link = false }).bg
  local colour = vim.api.nvim_get_hl(0, { name = of, link = false })
  return {
    fg = text or (vim.o.background == 'dark' and 0x000000 or 0xffffff),
    bg = colour.fg,
    ctermfg = vim.o.background == 'dark' and 0 or 15,
    ctermbg = colour.ctermfg,
    default = true,
  }
end

local defined = false

---Defines the groups, once, and again whenever a colour scheme has cleared them.
function M.define()
  if defined then
    return
  end
  defined = true
  local function set()
    for group, target in pairs(M.links) do
      vim.api.nvim_set_hl(0, group, { link = target, default = true })
    end
    for group, target in pairs(M.badges) do
      vim.api.nvim_set_hl(0, group, badge(target))
    end
  end
  set()
  vim.api.nvim_create_autocmd('ColorScheme', {
    group = vim.api.nvim_create_augroup('pi_ls_highlights', {}),
    callback = set,
  })
end

return M
