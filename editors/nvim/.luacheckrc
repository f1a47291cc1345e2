std = 'luajit'
max_line_length = 110
read_globals = { 'vim' }
-- options, variables and log files are set through these fields
globals = { 'vim.o', 'vim.bo', 'vim.wo', 'vim.b', 'vim.g', 'vim.v', 'vim.env', 'vim.opt', 'vim.ui', 'vim.notify' }
files['tests'] = { globals = { 'vim' } }
