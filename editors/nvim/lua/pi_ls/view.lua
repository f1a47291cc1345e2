---Scratch buffers `pi-ls://<name>`: one of each, shown in one window, with keys of their own.

local NARROW = 20
local M = {}

---@class pi_ls.Key
---@field [1] string
---@field [2] string what it does, in a few words
---@field [3] fun()

---@class pi_ls.View.Options
---@field client vim.lsp.Client the server it shows something of
---@field filetype string
---@field markdown? boolean highlight it as Markdown
---@field window string modifiers and size of the window, as for `:split`
---@field keys? pi_ls.Key[]
---@field enter? boolean go there (default true)

---@param name string
---@return integer?
function M.find(name)
  local wanted = 'pi-ls://' .. name
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_get_name(bufnr) == wanted then
      return bufnr
    end
  end
end

---@param name string
---@return integer
local function make(name)
  local bufnr = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_name(bufnr, 'pi-ls://' .. name)
  vim.bo[bufnr].bufhidden = 'hide'
  vim.bo[bufnr].modifiable = false
  return bufnr
end

---The window that shows the buffer in this tab page.
---@param bufnr integer
---@return integer?
function M.window(bufnr)
  for _, window in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    if vim.api.nvim_win_get_buf(window) == bufnr then
      return window
    end
  end
end

---A sentence in lines of at most `width` cells.
---@param text string
---@param width integer
---@return string[]
function M.wrapped(text, width)
  local lines = { '' }
  for word in text:gmatch('%S+') do
    local longer = lines[#lines] == '' and word or lines[#lines] .. ' ' .. word
    if lines[#lines] ~= '' and vim.fn.strdisplaywidth(longer) > width then
      table.insert(lines, word)
    else
      lines[#lines] = longer
    end
  end
  return lines
end

---@param keys pi_ls.Key[]
local function show_keys(keys)
  local room = vim.o.columns - 2 -- beside the border
  local lines, width = {}, 0
  for _, key in ipairs(keys) do
    local lead = (' %-6s '):format(key[1])
    for _, part in ipairs(M.wrapped(key[2], room - #lead - 1)) do
      table.insert(lines, lead .. part .. ' ')
      width = math.max(width, vim.fn.strdisplaywidth(lines[#lines]))
      lead = (' '):rep(#lead)
    end
  end
  local bufnr = vim.api.nvim_create_buf(false, true)
  vim.bo[bufnr].bufhidden = 'wipe'
  vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, lines)
  local window = vim.api.nvim_open_win(bufnr, true, {
    relative = 'editor',
    row = math.max(0, math.floor((vim.o.lines - #lines - 3) / 2)),
    col = math.max(0, vim.api.nvim_win_get_position(0)[2] + 1 - math.max(0, width - room + 1)),
    width = width,
    height = math.max(1, math.min(#lines, vim.o.lines - 4)),
    style = 'minimal',
    border = 'rounded',
    title = ' keys ',
  })
  local function close()
    if vim.api.nvim_win_is_valid(window) then
      vim.api.nvim_win_close(window, true)
    end
  end
  for _, lhs in ipairs { 'q', '<Esc>', 'g?' } do
    vim.keymap.set('n', lhs, close, { buffer = bufnr, nowait = true })
  end
  vim.api.nvim_create_autocmd('WinLeave', { buffer = bufnr, once = true, callback = close })
end

---Closes the window and goes back to the one the user came from.
local function close()
  local before = vim.fn.win_getid(vim.fn.winnr('#'))
  vim.cmd.close()
  if before ~= 0 and vim.api.nvim_win_is_valid(before) then
    vim.api.nvim_set_current_win(before)
  end
end

---The server a view shows something of: the one it was opened for, or that server's successor.
---@param name string
---@return vim.lsp.Client?
function M.client(name)
  local bufnr = M.find(name)
  return bufnr and require('pi_ls.client').get(bufnr) or nil
end

---@param bufnr integer
---@param keys pi_ls.Key[]
local function set_keys(bufnr, keys)
  keys = vim.list_extend(vim.list_slice(keys), {
    { 'q', 'close the window', close },
  })
  table.insert(keys, {
    'g?',
    'show these keys',
    function()
      show_keys(keys)
    end,
  })
  for _, key in ipairs(keys) do
    vim.keymap.set('n', key[1], key[3], { buffer = bufnr, nowait = true, desc = key[2] })
  end
end

---A view that was opened earlier is not left a sliver beside a new one.
local function make_room()
  for _, window in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    local is_ours = vim.b[vim.api.nvim_win_get_buf(window)].pi_ls_client ~= nil
    if is_ours and vim.api.nvim_win_get_width(window) < NARROW then
      vim.cmd.wincmd('=')
      return
    end
  end
end

---Shows a view, making its buffer and window where needed.
---@param name string
---@param options pi_ls.View.Options
---@return integer bufnr
---@return integer window
---@return boolean is_new whether the window is
function M.open(name, options)
  require('pi_ls.highlights').define()
  local before = vim.api.nvim_get_current_win()
  local bufnr = M.find(name)
  local is_new = not bufnr
  bufnr = bufnr or make(name)
  vim.b[bufnr].pi_ls_client = options.client.id
  vim.b[bufnr].pi_ls_root = options.client.root_dir
  local there = M.window(bufnr)
  local window = there
  if window then
    vim.api.nvim_set_current_win(window)
  else
    vim.cmd(require('pi_ls.config').split_command(options.window))
    make_room()
    window = vim.api.nvim_get_current_win()
    vim.api.nvim_win_set_buf(window, bufnr)
    for option, value in pairs { number = false, relativenumber = false, list = false, spell = false } do
      vim.api.nvim_set_option_value(option, value, { win = window, scope = 'local' })
    end
  end
  if is_new then
    set_keys(bufnr, options.keys or {})
    vim.bo[bufnr].filetype = options.filetype
    if options.markdown then
      vim.treesitter.language.register('markdown', options.filetype)
      pcall(vim.treesitter.start, bufnr, 'markdown')
    end
  end
  if options.enter == false then
    vim.api.nvim_set_current_win(before)
  end
  return bufnr, window, there == nil
end

---Replaces lines of a view (0-based, end excluded), which users cannot change themselves.
---@param bufnr integer
---@param first integer
---@param last integer
---@param lines string[]
function M.set_lines(bufnr, first, last, lines)
  vim.bo[bufnr].modifiable = true
  vim.api.nvim_buf_set_lines(bufnr, first, last, false, lines)
  vim.bo[bufnr].modifiable = false
  vim.bo[bufnr].modified = false
end

---Shows a text to be read, and nothing else.
---@param name string
---@param client vim.lsp.Client
---@param lines string[]
---@param filetype? string default: Markdown
function M.text(name, client, lines, filetype)
  local bufnr = M.open(name, {
    client = client,
    filetype = filetype or 'pi_ls_text',
    markdown = filetype == nil,
    window = require('pi_ls.config').get().windows.text,
  })
  M.set_lines(bufnr, 0, -1, lines)
end

---Text of any kind as lines for a buffer.
---@param text string
---@return string[]
function M.lines(text)
  return vim.split((text:gsub('\r\n?', '\n'):gsub('%z', '^@')), '\n', { plain = true })
end

return M
