---Questions of the agent: may a tool do this? One at a time, with what it would do shown beside.

local M = {}

local asking = {} ---@type table<integer, string> approval shown, by server

local DECISIONS = {
  { decision = 'once', text = 'Yes, this once' },
  { decision = 'session', text = 'Yes, for this session' },
  { decision = 'always', text = 'Yes, always in this project' },
  { decision = 'no', text = 'No' },
}

---A file's text as the agent will find it: of its buffer where it is loaded, else of the disk.
---@param path string
---@return string
local function current_text(path)
  local bufnr = require('pi_ls.files').buffer(path)
  if bufnr then
    return table.concat(vim.api.nvim_buf_get_lines(bufnr, 0, -1, false), '\n') .. '\n'
  end
  local file = io.open(path, 'r')
  if not file then
    return ''
  end
  local text = file:read('*a')
  file:close()
  return text
end

---@param text string
---@param edits { oldText: string, newText: string }[]
---@return string
local function apply(text, edits)
  for _, edit in ipairs(edits) do
    local first, last = text:find(edit.oldText, 1, true)
    if first and edit.oldText ~= '' then
      text = text:sub(1, first - 1) .. edit.newText .. text:sub(last + 1)
    end
  end
  return text
end

---What a tool would do, as lines, and their filetype.
---@param approval pi_ls.Approval
---@param root? string
---@return string[] lines
---@return string filetype
function M.preview(approval, root)
  local args = approval.args or {}
  local after ---@type string?
  local path = type(args.path) == 'string' and require('pi_ls.files').locate(args.path, root) or nil
  if path and approval.toolName == 'write' then
    after = args.content or ''
  elseif path and approval.toolName == 'edit' then
    local edits = vim.deepcopy(args.edits or {})
    if args.oldText and args.newText then
      table.insert(edits, { oldText = args.oldText, newText = args.newText })
    end
    after = apply(current_text(path), edits)
  end
  if path and after then
    local compare = vim.text and vim.text.diff or vim.diff
    local diff = compare(current_text(path), after, { ctxlen = 3 }) --[[@as string]]
    local head = { '--- ' .. args.path, '+++ ' .. args.path }
    if diff == '' then
      return { '(no change)' }, ''
    end
    return vim.list_extend(head, require('pi_ls.view').lines((diff:gsub('\n$', '')))), 'diff'
  elseif args.command then
    return require('pi_ls.view').lines(args.command), ''
  end
  return require('pi_ls.view').lines(vim.inspect(args)), 'lua'
end

local function close_preview()
  local bufnr = require('pi_ls.view').find('approval')
  if bufnr then
    vim.api.nvim_buf_delete(bufnr, { force = true })
  end
end

---@param client_id integer
---@param approval pi_ls.Approval
---@param decision string
function M.answer(client_id, approval, decision)
  local client = vim.lsp.get_client_by_id(client_id)
  if not client then
    return
  end
  local arguments = {
    approvalId = approval.approvalId,
    decision = decision,
    sessionId = approval.sessionId,
  }
  require('pi_ls.client').command(client, 'pi.answerApproval', arguments, function(err)
    if err then
      require('pi_ls.client').show_error(err)
    end
  end)
end

---@param client_id integer
---@param approval pi_ls.Approval
local function ask(client_id, approval)
  local instance, client = require('pi_ls.state').of(client_id), vim.lsp.get_client_by_id(client_id)
  if not instance or not client then
    return
  end
  asking[client_id] = approval.approvalId
  local lines, filetype = M.preview(approval, instance.root)
  local views = require('pi_ls.view')
  local before = vim.api.nvim_get_current_win()
  close_preview()
  views.text('approval', client, lines, filetype)
  vim.api.nvim_set_current_win(before)
  vim.cmd.redraw()
  vim.ui.select(DECISIONS, {
    prompt = ('pi asks: %s'):format(approval.summary or approval.toolName),
    kind = 'pi_ls_approval',
    format_item = function(item)
      return item.text
    end,
  }, function(choice)
    asking[client_id] = nil
    close_preview()
    if choice then
      M.answer(client_id, approval, choice.decision)
    else
      require('pi_ls.notify').warn('the agent waits for your answer: :PiLs approve')
    end
  end)
end

---Asks the oldest open question, once the user is not in the middle of typing.
---@param client_id integer
function M.next(client_id)
  vim.schedule(function()
    local instance = require('pi_ls.state').of(client_id)
    local approval = instance and instance.approvals[1]
    if not approval or asking[client_id] then
      return
    end
    if vim.api.nvim_get_mode().mode:match('^n') then
      ask(client_id, approval)
      return
    end
    require('pi_ls.notify').warn(('the agent asks: %s'):format(approval.summary or approval.toolName))
    vim.api.nvim_create_autocmd('ModeChanged', {
      group = vim.api.nvim_create_augroup('pi_ls_approval', {}),
      pattern = '*:n',
      once = true,
      callback = function()
        M.next(client_id)
      end,
    })
  end)
end

---For `pi/approval_resolved`: whoever answered, the next one is asked.
---@param client_id integer
---@param approval_id string
function M.resolved(client_id, approval_id)
  if asking[client_id] == approval_id then
    asking[client_id] = nil
    vim.schedule(close_preview)
  end
  M.next(client_id)
end

---For `:PiLs approve`: answers the oldest question, or asks it again.
---@param client vim.lsp.Client
---@param decision? string
function M.approve(client, decision)
  local instance = require('pi_ls.state').of(client.id)
  local approval = instance and instance.approvals[1]
  if not approval then
    require('pi_ls.notify').info('the agent asks nothing')
  elseif decision then
    M.answer(client.id, approval, decision)
  else
    asking[client.id] = nil
    M.next(client.id)
  end
end

return M
