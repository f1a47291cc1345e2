---Choosing the model and the thinking level.

local M = {}

M.LEVELS = { 'off', 'minimal', 'low', 'medium', 'high', 'xhigh' }

---@param model table row of `pi.listModels`
---@return string
local function reference(model)
  return model.provider .. '/' .. model.id
end

---@param client vim.lsp.Client
---@param ref string `provider/id`; the id may hold slashes
function M.set(client, ref)
  local provider, id = ref:match('^([^/]+)/(.+)$')
  if not provider then
    require('pi_ls.notify').error(('a model is named provider/id; "%s" is not'):format(ref))
    return
  end
  local arguments = { provider = provider, modelId = id }
  require('pi_ls.client').command(client, 'pi.setModel', arguments, function(err)
    if err then
      require('pi_ls.client').show_error(err)
    else
      require('pi_ls.notify').info(('model %s'):format(ref))
    end
  end)
end

---Asks for a model among those whose provider has credentials.
---@param client vim.lsp.Client
function M.select(client)
  require('pi_ls.client').command(client, 'pi.listModels', nil, function(err, result)
    if err then
      require('pi_ls.client').show_error(err)
      return
    end
    local available = vim.tbl_filter(function(model)
      return model.available
    end, result.models)
    if #available == 0 then
      require('pi_ls.notify').warn('no provider has credentials; see :help pi_ls-models')
      return
    end
    vim.ui.select(available, {
      prompt = 'Model',
      kind = 'pi_ls_model',
      format_item = function(model)
        local window = model.contextWindow
        local size = window and ('  (%s tokens)'):format(require('pi_ls.numbers').short(window)) or ''
        return reference(model) .. size
      end,
    }, function(model)
      if model then
        M.set(client, reference(model))
      end
    end)
  end)
end

---@param client vim.lsp.Client
---@param level string
function M.think(client, level)
  require('pi_ls.client').command(client, 'pi.setThinkingLevel', { level = level }, function(err)
    if err then
      require('pi_ls.client').show_error(err)
    else
      require('pi_ls.notify').info(('thinking level %s'):format(level))
    end
  end)
end

---For completion.
---@param lead string
---@return string[]
function M.matching(lead)
  local arguments = lead ~= '' and { query = lead } or nil
  local result = require('pi_ls.client').ask('pi.listModels', arguments, 1000)
  local refs = {}
  for _, model in ipairs(result and result.models or {}) do
    if vim.startswith(reference(model), lead) then
      table.insert(refs, reference(model))
    end
  end
  return refs
end

return M
