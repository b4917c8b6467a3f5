-- SPDX-License-Identifier: GPL-2.0-or-later
-- Frames of `hopscope wire` for Wireshark 4.0 and later, wherever they come from: an interface, extcap or a file.
--
-- What points, tracepoints, devices, threads and drop reasons are called is in the frames of the catalogue, which come
-- with them. Names of threads and devices come after the frames that have their numbers: of a file, tshark needs -2.
-- Fields cannot be made while frames are read: those of tracepoints are named when Wireshark starts, in the environment
-- (HOPSCOPE_EVENT_FIELDS="e_tcp_tcp_probe.snd_cwnd:number …"); others have one for the name and one for the value.

local LAYOUT, FLAGS, TLV, COLUMNS, TABLES = {}, {}, {}, {}, {}
local ETHERTYPE, VERSION, EVENT, CATALOGUE, EVENT_BYTES, HOP_LIMIT
-- [layout]

local made, proto = pcall(Proto.new, "hopwire", "Events of hopscope")
if not made then return end -- it is loaded already, as a plugin

local f = {
  kind = ProtoField.uint8("hopwire.kind", "Kind", base.DEC, { [EVENT] = "event", [CATALOGUE] = "catalogue" }),
  number = ProtoField.uint32("hopwire.number", "Number of the frame"),
  catalogue = ProtoField.uint32("hopwire.catalogue", "Number of its catalogue", base.HEX),
  point = ProtoField.string("hopwire.point", "Probe point"),
  point_number = ProtoField.uint16("hopwire.point_number", "Number of the probe point"),
  time_ns = ProtoField.uint64("hopwire.time_ns", "Time (CLOCK_MONOTONIC, ns)"),
  time = ProtoField.absolute_time("hopwire.time", "Time"),
  hop = ProtoField.relative_time("hopwire.hop", "Time since the packet's event before"),
  cpu = ProtoField.uint16("hopwire.cpu", "CPU"),
  packet = ProtoField.uint64("hopwire.packet", "Packet (struct sk_buff)", base.HEX),
  flow = ProtoField.int64("hopwire.flow", "Flow"),
  pid = ProtoField.uint32("hopwire.pid", "Process"),
  tid = ProtoField.uint32("hopwire.tid", "Thread"),
  comm = ProtoField.string("hopwire.comm", "Name of the thread"),
  ifindex = ProtoField.uint32("hopwire.ifindex", "Number of the device"),
  interface = ProtoField.string("hopwire.interface", "Device"),
  netns = ProtoField.uint32("hopwire.netns", "Network namespace"),
  len_bytes = ProtoField.int32("hopwire.len_bytes", "Length (bytes)"),
  protocol = ProtoField.uint8("hopwire.protocol", "Protocol", base.DEC, { [6] = "TCP", [17] = "UDP" }),
  source = ProtoField.ipv4("hopwire.source", "Source"),
  destination = ProtoField.ipv4("hopwire.destination", "Destination"),
  source6 = ProtoField.ipv6("hopwire.source6", "Source"),
  destination6 = ProtoField.ipv6("hopwire.destination6", "Destination"),
  source_port = ProtoField.uint16("hopwire.source_port", "Source port"),
  destination_port = ProtoField.uint16("hopwire.destination_port", "Destination port"),
  cut = ProtoField.bool("hopwire.cut", "Texts are not all there"),
  reason = ProtoField.string("hopwire.reason", "Why the packet was dropped"),
  field = ProtoField.string("hopwire.field", "Field of a tracepoint"),
  field_number = ProtoField.int64("hopwire.field.number", "Its value"),
  field_text = ProtoField.string("hopwire.field.text", "Its value"),
  host = ProtoField.string("hopwire.host", "Host"),
  version = ProtoField.string("hopwire.version", "Version of hopscope"),
  sent = ProtoField.uint64("hopwire.sent", "Events sent"),
  not_sent = ProtoField.uint64("hopwire.not_sent", "Events not sent"),
  lost = ProtoField.uint64("hopwire.lost", "Events lost by the recording"),
  entry = ProtoField.string("hopwire.entry", "Entry"),
}
-- Of columns: table.column → field.
local columns = {}
local function add_column(name, kind)
  local create = kind == "number" and ProtoField.int64 or kind == "text" and ProtoField.string
  if create and not columns[name] then columns[name] = create("hopwire." .. name, name) end
end
for name, kind in pairs(COLUMNS) do add_column(name, kind) end
for name, kind in (os.getenv("HOPSCOPE_EVENT_FIELDS") or ""):gmatch("([%w_.]+):(%a+)") do add_column(name, kind) end
local all = {}
for _, each in pairs(f) do all[#all + 1] = each end
for _, each in pairs(columns) do all[#all + 1] = each end
proto.fields = all
local incomplete = ProtoExpert.new("hopwire.incomplete", "Not a frame that hopscope sends", expert.group.MALFORMED,
  expert.severity.WARN)
proto.experts = { incomplete }

-- Number of a catalogue → what it has said so far.
local catalogues
function proto.init() catalogues = {} end

local function known(number)
  if not catalogues[number] then
    catalogues[number] = { points = {}, fields = {}, reasons = {}, threads = {}, devices = {} }
  end
  return catalogues[number]
end

local BILLION = UInt64.new(1000000000, 0)
local function nanoseconds(total)
  return NSTime.new((total / BILLION):tonumber(), (total % BILLION):tonumber())
end

-- Names are told after the frames that they are of: the first one from this frame on, else the last one.
local function name_at(told, frame)
  if not told then return nil end
  for _, each in ipairs(told) do
    if each.frame >= frame then return each.name end
  end
  return told[#told].name
end

local function tell(names, key, name, frame)
  local told = names[key] or {}
  names[key] = told
  if #told > 0 and told[#told].name == name then
    -- So it was called in between as well.
    told[#told].frame = frame
  else
    told[#told + 1] = { frame = frame, name = name }
  end
end

-- Entries behind the fields: type, value.
local function entries(tvb)
  local at, stop = EVENT_BYTES, EVENT_BYTES + tvb(LAYOUT.tlv_bytes[1], 2):uint()
  return function()
    if at + 4 > math.min(stop, tvb:len()) then return nil end
    local kind, length = tvb(at, 2):uint(), tvb(at + 2, 2):uint()
    if at + 4 + length > tvb:len() then return nil end
    local value = length > 0 and tvb(at + 4, length) or nil
    at = at + 4 + length + (-length) % 4
    return kind, length, value
  end
end

local function rest(value, from) return value:len() > from and value(from):raw() or "" end

-- What an entry of a catalogue is called, and what it says.
local said = {
  [TLV.VERSION] = function(_, value) return "version", value:raw() end,
  [TLV.HOST] = function(cat, value) cat.host = value:raw() return "host", cat.host end,
  [TLV.REALTIME_OFFSET] = function(cat, value)
    cat.offset = value:uint64()
    return "CLOCK_REALTIME - CLOCK_MONOTONIC", tostring(value:int64()) .. " ns"
  end,
  [TLV.POINT] = function(cat, value)
    local number, name = value(0, 2):uint(), rest(value, 2)
    cat.points[number] = name
    return "point", number .. " = " .. name
  end,
  [TLV.FIELD] = function(cat, value)
    local point, number, size, name = value(0, 2):uint(), value(2, 2):uint(), value(4, 2):uint(), rest(value, 6)
    cat.fields[point * 65536 + number] = { name = name, size = size }
    return "field", string.format("%d of %d = %s", number, point, name)
  end,
  [TLV.REASON] = function(cat, value)
    cat.reasons[value(0, 4):int()] = rest(value, 4)
    return "reason", value(0, 4):int() .. " = " .. rest(value, 4)
  end,
  [TLV.DEVICE] = function(cat, value, frame)
    local key = value(0, 4):uint() .. ":" .. value(4, 4):uint()
    tell(cat.devices, key, rest(value, 10), frame)
    return "device", key .. " = " .. rest(value, 10)
  end,
  [TLV.THREAD] = function(cat, value, frame)
    tell(cat.threads, value(0, 4):uint(), rest(value, 8), frame)
    return "thread", value(0, 4):uint() .. " = " .. rest(value, 8)
  end,
}

local function catalogue(tvb, pinfo, tree, cat)
  -- They are taken once; a second look finds them all.
  local into = pinfo.visited and { points = {}, fields = {}, reasons = {}, threads = {}, devices = {} } or cat
  local info = "catalogue"
  for kind, length, value in entries(tvb) do
    if kind == TLV.COUNTS and length == 24 then
      tree:add(f.sent, value(0, 8))
      tree:add(f.not_sent, value(8, 8))
      tree:add(f.lost, value(16, 8))
      info = string.format("catalogue: %s events sent, %s not sent, %s lost", tostring(value(0, 8):uint64()),
        tostring(value(8, 8):uint64()), tostring(value(16, 8):uint64()))
    elseif value and said[kind] then
      local ok, what, text = pcall(said[kind], into, value, pinfo.number)
      if not ok then
        tree:add_proto_expert_info(incomplete)
      elseif what == "host" or what == "version" then
        tree:add(f[what], value, text)
      else
        tree:add(f.entry, value, what .. " " .. text)
      end
    end
  end
  pinfo.cols.info = info
end

-- The fields behind those that all events have.
local function own_fields(tvb, tree, cat, point, name)
  local dropped
  for kind, _, value in entries(tvb) do
    local described = cat.fields[point * 65536 + kind]
    if described and value then
      local number
      if described.size == 4 then number = Int64.new(value:int(), value:int() < 0 and -1 or 0) end
      if described.size == 8 then number = value:int64() end
      local field = columns[(TABLES[name] or name or "") .. "." .. described.name]
      if described.name == "reason" and TABLES[name] then
        dropped = cat.reasons[value:int()] or value:int() ~= 0 and tostring(value:int()) or nil
        if dropped then tree:add(f.reason, value, dropped) end
      elseif field then
        tree:add(field, value, number or value:raw())
      else
        local part = tree:add(f.field, value, described.name)
        if number then part:add(f.field_number, value, number) else part:add(f.field_text, value, value:raw()) end
      end
    end
  end
  return dropped
end

local function ends(tvb, pinfo, tree)
  local function at(name) return tvb(LAYOUT[name][1], LAYOUT[name][2]) end
  local addresses = {}
  for _, name in ipairs({ "source", "destination" }) do
    local range = at(name)
    if at("ip_version"):uint() == 4 then
      tree:add(f[name], range(12, 4))
      addresses[name] = range(12, 4):ipv4()
    else
      tree:add(f[name .. "6"], range)
      addresses[name] = range:ipv6()
    end
    tree:add(f[name .. "_port"], at(name .. "_port"))
  end
  tree:add(f.protocol, at("protocol"))
  pinfo.src, pinfo.dst = addresses.source, addresses.destination
  pinfo.src_port, pinfo.dst_port = at("source_port"):uint(), at("destination_port"):uint()
  return at("source_port"):uint() .. " > " .. at("destination_port"):uint()
end

local function event(tvb, pinfo, tree, cat)
  local function at(name) return tvb(LAYOUT[name][1], LAYOUT[name][2]) end
  local flags = at("flags"):uint()
  local function has(flag) return bit.band(flags, FLAGS[flag]) ~= 0 end
  local point = at("point"):uint()
  local name = cat.points[point]
  tree:add(f.point, at("point"), name or tostring(point))
  tree:add(f.point_number, at("point"))
  tree:add(f.time_ns, at("time_ns"))
  if cat.offset then tree:add(f.time, at("time_ns"), nanoseconds(at("time_ns"):uint64() + cat.offset)) end
  local info = { name or "point " .. point }
  if has("HOP") then
    local hop = at("hop_ns"):uint()
    tree:add(f.hop, at("hop_ns"), NSTime.new(math.floor(hop / 1000000000), hop % 1000000000))
    info[#info + 1] = string.format("+%.3f us%s", hop / 1000, hop == HOP_LIMIT and " or longer" or "")
  end
  tree:add(f.cpu, at("cpu"))
  if has("PACKET") then tree:add(f.packet, at("packet")) end
  if has("FLOW") then tree:add(f.flow, at("flow")) end
  if has("ENDS") then info[#info + 1] = ends(tvb, pinfo, tree) end
  if has("LENGTH") then
    tree:add(f.len_bytes, at("len_bytes"))
    info[#info + 1] = at("len_bytes"):int() .. " bytes"
  end
  if has("NAMESPACE") then tree:add(f.netns, at("netns")) end
  if has("DEVICE") then
    tree:add(f.ifindex, at("ifindex"))
    local device = name_at(cat.devices[at("netns"):uint() .. ":" .. at("ifindex"):uint()], pinfo.number)
    if device then
      tree:add(f.interface, at("ifindex"), device)
      info[#info + 1] = device
    end
  end
  tree:add(f.tid, at("tid"))
  if has("PROCESS") then tree:add(f.pid, at("pid")) end
  local comm = name_at(cat.threads[at("tid"):uint()], pinfo.number)
  if comm then
    tree:add(f.comm, at("tid"), comm)
    info[#info + 1] = comm
  end
  if has("CUT") then tree:add(f.cut, at("flags"), true) end
  local dropped = own_fields(tvb, tree, cat, point, name)
  if dropped then table.insert(info, 2, dropped) end
  pinfo.cols.info = table.concat(info, "  ")
end

function proto.dissector(tvb, pinfo, root)
  pinfo.cols.protocol = "hopscope"
  local tree = root:add(proto, tvb())
  local function at(name) return tvb(LAYOUT[name][1], LAYOUT[name][2]) end
  if tvb:len() < EVENT_BYTES or at("version"):uint() ~= VERSION then
    tree:add_proto_expert_info(incomplete)
    pinfo.cols.info = "not a frame of this version"
    return
  end
  tree:add(f.kind, at("kind"))
  tree:add(f.number, at("number"))
  tree:add(f.catalogue, at("catalogue"))
  local cat = known(at("catalogue"):uint())
  if at("kind"):uint() == CATALOGUE then
    tree:add(f.time_ns, at("time_ns"))
    catalogue(tvb, pinfo, tree, cat)
  else
    event(tvb, pinfo, tree, cat)
  end
end

DissectorTable.get("ethertype"):add(ETHERTYPE, proto)
