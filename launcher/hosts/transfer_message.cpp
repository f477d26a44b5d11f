#include "launcher/hosts/transfer_message.h"

#include "framework/fields/byte_fields.h"
#include "launcher/hosts/chunk_table.h"

namespace strait::transfer::message {
namespace {

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

}  // namespace strait::transfer::message
