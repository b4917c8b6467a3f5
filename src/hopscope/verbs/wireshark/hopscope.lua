-- SPDX-License-Identifier: GPL-2.0-or-later
-- The hops of packets that hopscope wrote, as fields of Wireshark 4.0 and later.
-- wireshark -r FILE -X lua_script:hopscope.lua -X lua_script1:FILE
--
-- Which fields there are, and their kinds, is in the comment of the file's first section; their values are in the
-- comments of packets. So this script shows probe points that were unknown when it was written.

local SECTION, COMMENT = 0x0A0D0D0A, 1

local proto = Proto("hopscope", "hopscope")
local comments = Field.new("frame.comment")
local kinds = {
  us = ProtoField.relative_time,
  number = ProtoField.uint64,
  text = ProtoField.string,
  flag = ProtoField.bool,
}

-- The comment of the first section; nil: it has none, or the file is no pcapng.
local function catalogue(path)
  local file = path and io.open(path, "rb")
  if not file then return nil end
  local head = file:read(24)
  if not head or #head < 24 or Struct.unpack("<I4", head) ~= SECTION then return nil end
  local order = Struct.unpack("<I4", head, 9) == 0x1A2B3C4D and "<" or ">"
  local options = file:read(math.min(Struct.unpack(order .. "I4", head, 5), 1048576) - 28) or ""
  file:close()
  local place = 1
  while place + 4 <= #options do
    local code, length = Struct.unpack(order .. "I2I2", options, place)
    if code == 0 then return nil end
    local value = options:sub(place + 4, place + 3 + length)
    if code == COMMENT and value:match("^hopscope/1 ") then return value end
    place = place + 4 + length + (-length) % 4
  end
end

local fields, kind_of = {}, {}
for name, kind in (catalogue(...) or ""):gmatch("([%w_.]+):(%a+)") do
  if kinds[kind] then
    local short = name:gsub("%.", "_")
    fields[name], kind_of[name] = kinds[kind]("hopscope." .. short, name), kind
  end
end
proto.fields = fields

local function nanoseconds(text)
  local whole, thousandths = text:match("^(%d+)%.(%d%d%d)us$")
  if not whole then return nil end
  local ns = tonumber(whole) * 1000 + tonumber(thousandths)
  return NSTime.new(math.floor(ns / 1000000000), ns % 1000000000)
end

local function show(tree, name, text)
  local kind = kind_of[name]
  local value = text
  if kind == "us" then value = nanoseconds(text)
  elseif kind == "number" then value = text:match("^%d+$") and UInt64.new(text)
  elseif kind == "flag" then value = true end
  if kind and value then tree:add(fields[name], value) end
end

function proto.dissector(_, _, root)
  for _, comment in ipairs({ comments() }) do
    local text = comment.value
    if text:sub(1, 9) == "hopscope " then
      local tree = root:add(proto)
      -- What is quoted comes first, and is taken out: a process may call itself as it likes.
      local rest = text:sub(9):gsub('([%w_.]+)="([^"]*)"', function(name, value)
        show(tree, name, value)
        return ""
      end)
      for word in rest:gmatch("%S+") do
        local name, value = word:match("^([%w_.]+)=(.*)$")
        show(tree, name or word, value or "")
      end
    end
  end
end

register_postdissector(proto, true)
