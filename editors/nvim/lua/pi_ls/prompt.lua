---Prompts: sent at once, or written in the buffer `pi-ls://prompt`, whose `:write` sends.

local M = {}

---Sends a prompt and shows the conversation beside.
---@param client vim.lsp.Client
---@param text string
---@param command? 'pi.prompt'|'pi.steer'|'pi.followUp'
---@param on_sent? fun()
function M.send(client, text, command, on_sent)
  require('pi_ls.transcript').open(client, false)
  require('pi_ls.client').command(client, command or 'pi.prompt', { text = text }, function(err, result)
    if err then
      require('pi_ls.client').show_error(err)
      return
    end
    if result.disposition == 'queued' then
      require('pi_ls.notify').info('queued; it is delivered when the time comes')
    end
    if on_sent then
      on_sent()
    end
  end)
end

---@param bufnr integer
---@return string
local function text_of(bufnr)
  return vim.trim(table.concat(vim.api.nvim_buf_get_lines(bufnr, 0, -1, false), '\n'))
end

---@param bufnr integer
local function send_buffer(bufnr)
  local client = require('pi_ls.client').get(bufnr)
  local text = text_of(bufnr)
  if not client then
    require('pi_ls.notify').error('the server of this prompt is not running any more; :PiLs restart')
    return
  elseif text == '' then
    require('pi_ls.notify').info('the prompt is empty')
    return
  end
  M.send(client, text, 'pi.prompt', function()
    if text_of(bufnr) == text then
      vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, {})
    end
    vim.bo[bufnr].modified = false
    local window = require('pi_ls.view').window(bufnr)
    if window and #vim.api.nvim_tabpage_list_wins(0) > 1 then
      vim.api.nvim_win_close(window, true)
    end
  end)
end

---@param bufnr integer
local function prepare(bufnr)
  vim.bo[bufnr].modifiable = true
  vim.bo[bufnr].buftype = 'acwrite'
  vim.bo[bufnr].buflisted = false
  vim.api.nvim_create_autocmd('BufWriteCmd', {
    group = vim.api.nvim_create_augroup('pi_ls_prompt', {}),
    buffer = bufnr,
    callback = function()
      send_buffer(bufnr)
    end,
  })
end

---Opens the prompt, with a text after what is already in it.
---@param client vim.lsp.Client
---@param text? string
function M.open(client, text)
  local views = require('pi_ls.view')
  local is_new = views.find('prompt') == nil
  local bufnr, window = views.open('prompt', {
    client = client,
    filetype = 'pi_ls_prompt',
    markdown = true,
    window = require('pi_ls.config').get().windows.prompt,
    keys = {
      {
        '<CR>',
        'send (as does :write)',
        function()
          send_buffer(vim.api.nvim_get_current_buf())
        end,
      },
    },
  })
  if is_new then
    prepare(bufnr)
  end
  vim.wo[window].winbar = ' pi prompt: <CR> or :w sends  %=g? keys '
  vim.wo[window].winfixheight = true
  if text then
    local lines = views.lines(text)
    if text_of(bufnr) ~= '' then
      table.insert(lines, 1, '')
      vim.api.nvim_buf_set_lines(bufnr, -1, -1, false, lines)
    else
      vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, lines)
    end
  end
  vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(bufnr), 0 })
  vim.cmd.normal { '$', bang = true }
end

---Lines of a buffer as part of a prompt: the file's name, the lines' numbers, the text.
---@param bufnr integer
---@param first integer from 1
---@param last integer included
---@param root? string
---@return string
function M.selection(bufnr, first, last, root)
  local name = vim.fs.normalize(vim.api.nvim_buf_get_name(bufnr))
  local shown = root and vim.fs.relpath(root, name) or name
  local text = table.concat(vim.api.nvim_buf_get_lines(bufnr, first - 1, last, false), '\n')
  local lines = require('pi_ls.render').fenced(text)
  lines[1] = lines[1] .. vim.bo[bufnr].filetype
  local numbers = first == last and ('line %d'):format(first) or ('lines %d-%d'):format(first, last)
  table.insert(lines, 1, ('`%s`, %s:'):format(shown ~= '' and shown or 'unnamed buffer', numbers))
  return table.concat(lines, '\n')
end

return M
