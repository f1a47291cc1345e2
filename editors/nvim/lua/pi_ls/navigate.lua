---Moving the session to another place of its tree, with the choice of what to keep of the branch left.

local M = {}

local CHOICES = {
  plain = { key = 'plain', text = 'No summary' },
  summary = { key = 'summary', text = 'Summarize the branch you leave' },
  focus = { key = 'focus', text = 'Summarize with your instructions …' },
}

---@class pi_ls.Navigation
---@field sessionId? string
---@field summarize? boolean nil: ask
---@field customInstructions? string
---@field label? string

---@param result table
---@param client vim.lsp.Client
---@param target string
local function moved(result, client, target)
  local notify = require('pi_ls.notify')
  if result.cancelled then
    notify.info(result.aborted and 'stopped; the session is where it was' or 'not allowed by an extension')
    return
  end
  local state = require('pi_ls.state').current(client.id)
  if state then
    state.previous_leaf = result.oldLeafId
  end
  if result.editorText and result.editorText ~= '' then
    require('pi_ls.prompt').open(client, result.editorText)
  end
  local how = result.summaryEntry and 'moved, with a summary of the branch left' or 'moved'
  if result.leafId == result.oldLeafId then
    how = 'already there'
  elseif target ~= result.leafId and result.editorText then
    how = how .. '; the text is in the prompt'
  end
  notify.info(how .. (result.leafId ~= result.oldLeafId and '. Back: :PiLs branch -' or ''))
end

---@param client vim.lsp.Client
---@param target string
---@param how pi_ls.Navigation
local function go(client, target, how)
  local state = require('pi_ls.state').current(client.id)
  local events = require('pi_ls.events')
  local function summarizing(value)
    if state and how.summarize then
      state.summarizing = value
      events.announce('PiLsSummarizing', { client_id = client.id, active = value })
    end
  end
  local arguments = vim.tbl_extend('force', { targetId = target }, how)
  summarizing(true)
  require('pi_ls.client').command(client, 'pi.navigateTree', arguments, function(err, result)
    summarizing(false)
    if err then
      require('pi_ls.client').show_error(err)
    else
      moved(result, client, target)
    end
  end)
end

---The three choices in the order of the user's settings: the first is the one taken most easily.
---@param client vim.lsp.Client
---@param callback fun(choices: table[], skip: boolean)
local function choices(client, callback)
  require('pi_ls.client').command(client, 'pi.reloadSettings', nil, function(err, result)
    local settings = not err and result.settings and result.settings.branchSummary or {}
    local order = settings.enabled == true and { CHOICES.summary, CHOICES.plain, CHOICES.focus }
      or { CHOICES.plain, CHOICES.summary, CHOICES.focus }
    callback(order, settings.skipPrompt == true)
  end)
end

---Calls back with whether nothing is left behind: the target is below the place the session is at.
---One page is looked at; whoever goes very far ahead is asked for nothing's sake.
---@param client vim.lsp.Client
---@param target string
---@param callback fun(leaves_nothing: boolean)
local function leaves_nothing(client, target, callback)
  local session = require('pi_ls.state').current(client.id)
  if not session or not session.info.leafId then
    callback(session ~= nil)
    return
  end
  local below = { rootId = session.info.leafId, filter = 'all' }
  require('pi_ls.client').command(client, 'pi.getTree', below, function(err, result)
    callback(vim.iter(not err and result.nodes or {}):any(function(node)
      return node.id == target
    end))
  end)
end

---@param client vim.lsp.Client
---@param callback fun(how: pi_ls.Navigation)
local function ask(client, callback)
  local wanted = require('pi_ls.config').get().summary
  if wanted ~= 'ask' then
    callback { summarize = wanted == 'summarize' }
    return
  end
  choices(client, function(order, skip)
    if skip then
      callback { summarize = false }
      return
    end
    vim.ui.select(order, {
      prompt = 'Leaving this branch: what shall stay of it?',
      kind = 'pi_ls_summary',
      format_item = function(choice)
        return choice.text
      end,
    }, function(choice)
      if not choice then
        return -- not answered: nothing moves
      elseif choice.key ~= 'focus' then
        callback { summarize = choice.key == 'summary' }
        return
      end
      vim.ui.input({ prompt = 'What matters in the summary: ' }, function(text)
        if text and vim.trim(text) ~= '' then
          callback { summarize = true, customInstructions = text }
        end
      end)
    end)
  end)
end

---Moves to an entry. Asks about a summary unless `how.summarize` says, or nothing is left behind.
---@param client vim.lsp.Client
---@param target string
---@param how? pi_ls.Navigation
function M.to(client, target, how)
  how = how or {}
  local state = require('pi_ls.state').current(client.id)
  if state and state.info.leafId == target then
    require('pi_ls.notify').info('already there')
    return
  end
  if how.summarize ~= nil then
    go(client, target, how)
    return
  end
  leaves_nothing(client, target, function(nothing)
    if nothing then
      go(client, target, vim.tbl_extend('force', how, { summarize = false }))
      return
    end
    ask(client, function(chosen)
      go(client, target, vim.tbl_extend('force', how, chosen))
    end)
  end)
end

---@param node pi_ls.Node
---@return string
local function describe(node)
  local numbers = require('pi_ls.numbers')
  local where = node.onPath and 'before' or 'go to'
  local label = node.label and (' [%s]'):format(node.label) or ''
  local width = math.max(30, vim.o.columns - 35 - #label)
  local said = vim.fn.strcharpart(node.text, 0, width)
  local text = ('%s: %s%s%s'):format(where, said, said ~= node.text and '…' or '', label)
  local when = numbers.ago(node.timestamp)
  return when ~= '' and ('%s  (%s)'):format(text, when) or text
end

---Asks where to go: the ends of other branches, then the user's own messages on this one.
---@param client vim.lsp.Client
function M.select(client)
  local outline = require('pi_ls.outline')
  outline.all(client, {}, function(nodes)
    local items = vim.list_extend(outline.other_tips(nodes), outline.own_messages(nodes))
    if #items == 0 then
      require('pi_ls.notify').info('this session has no other place to go to')
      return
    end
    vim.ui.select(items, {
      prompt = 'Branch',
      kind = 'pi_ls_branch',
      format_item = describe,
    }, function(node)
      if node then
        M.to(client, node.id)
      end
    end)
  end)
end

---Back to where the session was before it last moved, without a question.
---@param client vim.lsp.Client
function M.back(client)
  local state = require('pi_ls.state').current(client.id)
  if state and state.previous_leaf then
    M.to(client, state.previous_leaf, { summarize = false })
  else
    require('pi_ls.notify').info('the session has not moved yet')
  end
end

return M
