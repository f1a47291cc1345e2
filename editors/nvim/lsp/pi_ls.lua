-- The server's configuration for `vim.lsp.enable('pi_ls')`. `vim.g.pi_ls` is the place for the plugin's
-- options; `vim.lsp.config('pi_ls', { … })` overrides anything here as with every other server.
return require('pi_ls.server').config()
