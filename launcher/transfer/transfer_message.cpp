#include "launcher/transfer/transfer_message.h"

#include <utility>

#include "framework/fields/byte_fields.h"

namespace strait::transfer {

// The fields in the order of the wire.
void describe(auto& fields, fields::Is<ChunkRun> auto& run) {
  fields("first", run.first), fields("count", run.count);
}
void describe(auto& fields, fields::Is<ChunkTable> auto& table) {
  constexpr std::size_t kMostHashes = std::size_t{ChunkTable::kMostChunks} * ChunkTable::kDigits;
  fields("size", table.size), fields("whole", fields::at_most(table.whole, ChunkTable::kDigits));
  fields("chunks", fields::at_most(table.chunks, kMostHashes));
}

namespace message {
namespace {

constexpr std::size_t kMostPath = 4096;
constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostAddress = 512;
constexpr std::size_t kMostErrorText = std::size_t{64} << 10;  // the writer truncates it
constexpr std::size_t kMostSmallFile = std::size_t{16} << 20;

auto content_id(auto& id) { return fields::exactly(id, ChunkTable::kDigits); }

}  // namespace

void describe(auto& fields, fields::Is<Get> auto& m) {
  fields("id", content_id(m.id)), fields("chunk", m.chunk);
}
void describe(auto& fields, fields::Is<Chunk> auto& m) {
  fields("id", content_id(m.id)), fields("chunk", m.chunk);
  fields("content", fields::rest(m.content, ChunkTable::kChunkBytes));
}
void describe(auto& fields, fields::Is<Missing> auto& m) {
  fields("id", content_id(m.id)), fields("chunk", m.chunk);
}
void describe(auto& /*fields*/, fields::Is<Wait> auto& /*m*/) {}
void describe(auto& fields, fields::Is<Stat> auto& m) {
  fields("command", m.command), fields("path", fields::at_most(m.path, kMostPath));
}
void describe(auto& fields, fields::Is<Fetch> auto& m) {
  fields("command", m.command), fields("table", m.table), fields("runs", m.runs);
  fields("path", fields::at_most(m.path, kMostPath));
  fields("source", fields::at_most(m.source, kMostName));
}
void describe(auto& fields, fields::Is<Put> auto& m) {
  fields("command", m.command), fields("path", fields::at_most(m.path, kMostPath));
  fields("text", fields::at_most(m.text, kMostSmallFile));
}
void describe(auto& fields, fields::Is<Prune> auto& m) {
  fields("command", m.command), fields("path", fields::at_most(m.path, kMostPath));
  fields("steps", m.steps);
}
void describe(auto& fields, fields::Is<Rewind> auto& m) {
  fields("command", m.command), fields("path", fields::at_most(m.path, kMostPath));
  fields("step", m.step);
}
void describe(auto& fields, fields::Is<Accept> auto& m) {
  fields("command", m.command), fields("process", fields::at_most(m.process, kMostName));
  fields("key", fields::at_most(m.key, kMostName));
}
void describe(auto& fields, fields::Is<Connect> auto& m) {
  fields("process", fields::at_most(m.process, kMostName));
  fields("host", fields::at_most(m.host, kMostAddress));
  fields("endpoint", fields::at_most(m.endpoint, kMostAddress));
  fields("key", fields::at_most(m.key, kMostName));
}
void describe(auto& fields, fields::Is<Table> auto& m) {
  fields("command", m.command), fields("table", m.table);
}
void describe(auto& fields, fields::Is<Accepting> auto& m) {
  fields("command", m.command), fields("endpoint", fields::at_most(m.endpoint, kMostAddress));
}
void describe(auto& fields, fields::Is<Done> auto& m) {
  fields("command", m.command), fields("fetched", m.fetched);
}
void describe(auto& fields, fields::Is<Failed> auto& m) {
  fields("command", m.command), fields("code", m.code);
  fields("text", fields::at_most(m.text, kMostErrorText));
}

namespace {

template <std::size_t I = 0>
Message read_kind(std::uint8_t kind, fields::BytesReader& reader) {
  if constexpr (I == std::variant_size_v<Message>) {
    throw base::MessageError("transfer message: unknown kind");
  } else {
    if (kind != I) return read_kind<I + 1>(kind, reader);
    std::variant_alternative_t<I, Message> message;
    describe(reader, message);
    return message;
  }
}

void check(const auto& message) {
  if constexpr (requires { message.id; }) {
    if (!is_content_id(message.id)) {
      throw base::MessageError("transfer message: a content id is not a hash");
    }
  }
  if constexpr (requires { message.table; }) {
    if (!message.table.well_formed()) {
      throw base::MessageError("transfer message: the chunk table is not well formed");
    }
  }
}

}  // namespace

net::Frame format(const Message& message) {
  net::Frame frame;
  fields::BytesWriter writer(frame);
  writer("kind", static_cast<std::uint8_t>(message.index()));
  std::visit([&writer](const auto& one) { describe(writer, one); }, message);
  return frame;
}

net::Frame chunk_frame(const std::string& id, std::uint32_t chunk, std::size_t bytes,
                       std::span<std::byte>& content) {
  net::Frame frame = format(Chunk{id, chunk, {}});
  const std::size_t header = frame.size();
  frame.resize(header + bytes);
  content = std::span<std::byte>(frame).subspan(header);
  return frame;
}

Message parse_message(std::span<const std::byte> frame) {
  fields::BytesReader reader(frame, "transfer message");
  std::uint8_t kind = 0;
  reader("kind", kind);
  Message message = read_kind(kind, reader);
  reader.finish();
  std::visit([](const auto& one) { check(one); }, message);
  return message;
}

}  // namespace message
}  // namespace strait::transfer
