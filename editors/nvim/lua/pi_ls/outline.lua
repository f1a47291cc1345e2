---The session's tree as nodes, and the questions asked of it. Fetches; shows nothing.

---@class pi_ls.Node one node of `pi.getTree`
---@field id string
---@field parentId? string
---@field type string
---@field role? string
---@field text string
---@field label? string
---@field timestamp string|number
---@field tokens number
---@field childCount integer
---@field onPath boolean
---@field isLeaf boolean
---@field orphan? boolean

---@class pi_ls.Outline
---@field nodes pi_ls.Node[] depth first
---@field leafId? string

local M = {}

---Fetches the whole tree, page after page.
---@param client vim.lsp.Client
---@param arguments table `filter`, `query`, `sessionId`
---@param callback fun(outline: pi_ls.Outline)
function M.fetch(client, arguments, callback)
  local nodes = {}
  local function page(cursor)
    local asked = vim.tbl_extend('force', arguments, { cursor = cursor })
    require('pi_ls.client').command(client, 'pi.getTree', asked, function(err, result)
      if err then
        require('pi_ls.client').show_error(err)
        return
      end
      vim.list_extend(nodes, result.nodes)
      if result.hasMore and result.cursor then
        page(result.cursor)
      else
        callback { nodes = nodes, leafId = result.leafId }
      end
    end)
  end
  page(nil)
end

---How deep each node lies, counting real forks only: a line of talk stays flat.
---@param nodes pi_ls.Node[]
---@return table<string, integer> depth by id
---@return table<string, true> nodes that begin a branch, by id
function M.depths(nodes)
  local siblings = {} ---@type table<string, integer>
  for _, node in ipairs(nodes) do
    local parent = node.parentId or ''
    siblings[parent] = (siblings[parent] or 0) + 1
  end
  local depths, begins = {}, {}
  for _, node in ipairs(nodes) do
    local depth = node.parentId and depths[node.parentId] or 0
    if node.parentId and siblings[node.parentId] > 1 then
      depth = depth + 1
      begins[node.id] = true
    end
    depths[node.id] = depth
  end
  return depths, begins
end

---The ends of the branches that are left aside, newest first.
---@param nodes pi_ls.Node[]
---@return pi_ls.Node[]
function M.other_tips(nodes)
  local tips = vim.tbl_filter(function(node)
    return node.childCount == 0 and not node.onPath
  end, nodes)
  local seconds = require('pi_ls.numbers').seconds
  table.sort(tips, function(a, b)
    local one, other = seconds(a.timestamp) or 0, seconds(b.timestamp) or 0
    return one ~= other and one > other or one == other and a.id > b.id
  end)
  return tips
end

---What the user said on the current path, newest first.
---@param nodes pi_ls.Node[]
---@return pi_ls.Node[]
function M.own_messages(nodes)
  local own = {}
  for _, node in ipairs(nodes) do
    if node.onPath and node.role == 'user' then
      table.insert(own, 1, node)
    end
  end
  return own
end

---@param node pi_ls.Node
---@return string
function M.kind(node)
  local kinds = { toolResult = 'tool', bashExecution = 'bash' }
  local role = node.role and (kinds[node.role] or node.role)
  return role or (node.type == 'branch_summary' and 'branch') or node.type:gsub('_.*', '')
end

return M
