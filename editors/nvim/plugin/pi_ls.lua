-- Commands and <Plug> maps. Nothing else is loaded before the first of them is used.
if vim.g.loaded_pi_ls then
  return
end
vim.g.loaded_pi_ls = true

if vim.fn.has('nvim-0.11') == 0 then
  vim.api.nvim_echo({ { 'pi_ls needs Neovim 0.11 or newer', 'ErrorMsg' } }, true, {})
  return
end

vim.api.nvim_create_user_command('PiLs', function(command)
  require('pi_ls.commands').run(command)
end, {
  nargs = '*',
  range = true,
  bang = true,
  desc = 'pi sessions: see :help :PiLs',
  complete = function(lead, line)
    return require('pi_ls.commands').complete(lead, line)
  end,
})

for _, name in ipairs {
  'abort',
  'branch',
  'compact',
  'context',
  'model',
  'preview',
  'prompt',
  'sessions',
  'transcript',
  'tree',
  'undo',
} do
  vim.keymap.set('n', ('<Plug>(pi-ls-%s)'):format(name), ('<Cmd>PiLs %s<CR>'):format(name))
end
vim.keymap.set('x', '<Plug>(pi-ls-prompt)', ':PiLs prompt<CR>')
