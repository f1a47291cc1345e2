-- A Neovim with this plugin and nothing else, as a user would set it up.
local here = vim.fs.dirname(vim.fs.abspath(debug.getinfo(1, 'S').source:sub(2)))
vim.opt.runtimepath:prepend(vim.fs.dirname(here))
vim.o.swapfile = false
vim.o.shadafile = 'NONE'
vim.o.laststatus = 2
vim.o.showmode = false
vim.o.ruler = false
vim.o.hlsearch = false
vim.o.statusline = " %f%m %= %{%v:lua.require'pi_ls.status'.statusline()%} "
vim.g.pi_ls = { cmd = vim.json.decode(vim.env.PI_LS_SERVER) }
vim.cmd('filetype plugin on | runtime plugin/pi_ls.lua')
vim.lsp.enable('pi_ls')
