---Projects, sessions and models on the disk, in the scratch directory of the test.

local F = {}

local scratch = assert(vim.env.PI_LS_SCRATCH, 'run the tests with run.sh')
F.agent_dir = scratch .. '/agent'
vim.env.PI_CODING_AGENT_DIR = F.agent_dir

function F.write(path, text)
  vim.fn.mkdir(vim.fs.dirname(path), 'p')
  local file = assert(io.open(path, 'w'))
  file:write(text)
  file:close()
  return path
end

function F.read(path)
  local file = assert(io.open(path, 'r'))
  local text = file:read('*a')
  file:close()
  return text
end

---@param url? string where the model is; default: nowhere
function F.models(url)
  local model = { id = 'm200', contextWindow = 200000, maxTokens = 8192 }
  local small = { id = 'm64', contextWindow = 64000, maxTokens = 8192 }
  local provider = {
    baseUrl = (url or 'http://127.0.0.1:9') .. '/v1',
    api = 'openai-completions',
    apiKey = 'none',
    models = { model, small },
  }
  F.write(F.agent_dir .. '/models.json', vim.json.encode { providers = { fake = provider } })
end

function F.settings(settings)
  F.write(F.agent_dir .. '/settings.json', vim.json.encode(settings))
end

---Summaries made offline; a compaction keeps about 1,000 tokens.
function F.offline()
  F.settings {
    compaction = { models = { 'offline/extractive' }, keepRecentTokens = 1000, reserveTokens = 16384 },
  }
end

local function line(kind, id, parent, fields)
  local entry = { type = kind, id = id, parentId = parent or vim.NIL, timestamp = '2026-01-01T00:00:00.000Z' }
  return vim.json.encode(vim.tbl_extend('force', entry, fields))
end

function F.user(id, parent, text)
  return line('message', id, parent, { message = { role = 'user', content = text, timestamp = 1 } })
end

function F.assistant(id, parent, text, total)
  local cost = { input = 0, output = 0, cacheRead = 0, cacheWrite = 0, total = 0 }
  local usage = { input = total, output = 0, cacheRead = 0, cacheWrite = 0, totalTokens = total, cost = cost }
  local message = {
    role = 'assistant',
    content = { { type = 'text', text = text } },
    api = 'openai-completions',
    provider = 'fake',
    model = 'm200',
    usage = usage,
    stopReason = 'stop',
    timestamp = 2,
  }
  return line('message', id, parent, { message = message })
end

---A directory that is a project, with a file in it.
function F.project(name)
  local root = vim.fs.normalize(vim.uv.fs_realpath(scratch) .. '/' .. name)
  vim.fn.mkdir(root .. '/.git', 'p')
  F.write(root .. '/a.txt', 'one\ntwo\nthree\n')
  return root
end

function F.session_file(root, id)
  local encoded = '--' .. root:sub(2):gsub('[/\\:]', '-') .. '--'
  return ('%s/sessions/%s/2026-01-01T00-00-00-000Z_%s.jsonl'):format(F.agent_dir, encoded, id)
end

---A session of a project, made of lines.
function F.session(root, id, lines)
  local header =
    { type = 'session', version = 3, id = id, timestamp = '2026-01-01T00:00:00.000Z', cwd = root }
  local text = table.concat(vim.list_extend({ vim.json.encode(header) }, lines), '\n') .. '\n'
  return F.write(F.session_file(root, id), text)
end

local FILLER = ('lorem ipsum dolor '):rep(1200)

---Two long turns and two branches:
---u1 ─ a1 ─ u2 ─ a2 (the leaf, 128,000 of 200,000 tokens)
---      └── u3 ─ a3
function F.branched(root, id)
  return F.session(root, id or 's-1', {
    F.user('u1', nil, 'Fix the parser. ' .. FILLER),
    F.assistant('a1', 'u1', 'I fixed the parser.', 60000),
    F.user('u3', 'a1', 'Try the other way'),
    F.assistant('a3', 'u3', 'The other way is slower.', 61000),
    F.user('u2', 'a1', 'Now the tests. ' .. FILLER),
    F.assistant('a2', 'u2', 'The tests pass.', 128000),
  })
end

---A provider on loopback as a process of its own. Python source: the reply to every request, and a list of
---replies that come first.
function F.provider(reply, script)
  local source = ([[
import asyncio, sys
from tests.provider import Call, Provider, Reply
async def main():
    async with Provider() as provider:
        provider.script = %s
        provider.default = %s
        print(provider.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
]]):format(script or '[]', reply)
  local url
  local process = vim.system({ vim.env.PI_LS_PYTHON, '-c', source }, {
    stdin = true,
    cwd = vim.env.PI_LS_ROOT,
    stdout = function(_, data)
      url = url or data and data:match('%S+')
    end,
  })
  vim.wait(20000, function()
    return url ~= nil
  end, 10)
  return assert(url, 'the provider did not start'), process
end

return F
