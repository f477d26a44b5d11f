#include "launcher/transfer/transfer_message.h"

#include <bit>
#include <concepts>
#include <cstring>
#include <type_traits>
#include <utility>

namespace strait::transfer::message {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr std::size_t kMostPath = 4096;
constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostErrorText = std::size_t{64} << 10;
constexpr std::size_t kMostSmallFile = std::size_t{16} << 20;
constexpr std::size_t kMostHashes = std::size_t{ChunkTable::kMostChunks} * ChunkTable::kDigits;

template <class T, class U>
concept Same = std::same_as<std::remove_const_t<T>, U>;

// The fields of each message in the order of the wire; the writer and the reader both use them.
void fields(auto& f, Same<ChunkTable> auto& m) {
  f.number(m.size), f.text(m.whole, ChunkTable::kDigits), f.text(m.chunks, kMostHashes);
}
void fields(auto& f, Same<Subscribe> auto& m) { f.id(m.id); }
void fields(auto& f, Same<Have> auto& m) { f.id(m.id), f.runs(m.runs); }
void fields(auto& f, Same<GetChunk> auto& m) { f.id(m.id), f.number(m.chunk), f.flag(m.force); }
void fields(auto& f, Same<Chunk> auto& m) { f.id(m.id), f.number(m.chunk), f.rest(m.content); }
void fields(auto& f, Same<Redirect> auto& m) {
  f.id(m.id), f.number(m.chunk), f.text(m.process, kMostName);
}
void fields(auto& f, Same<Missing> auto& m) { f.id(m.id), f.number(m.chunk); }
void fields(auto& f, Same<Stat> auto& m) { f.number(m.command), f.text(m.path, kMostPath); }
void fields(auto& f, Same<Fetch> auto& m) {
  f.number(m.command), fields(f, m.table), f.runs(m.runs), f.text(m.path, kMostPath);
}
void fields(auto& f, Same<WriteFile> auto& m) {
  f.number(m.command), f.text(m.path, kMostPath), f.text(m.text, kMostSmallFile);
}
void fields(auto& f, Same<Cancel> auto& m) { f.number(m.command); }
void fields(auto& f, Same<StatResult> auto& m) { f.number(m.command), fields(f, m.table); }
void fields(auto& f, Same<Done> auto& m) { f.number(m.command), f.number(m.fetched); }
void fields(auto& f, Same<Failed> auto& m) {
  f.number(m.command), f.code(m.code), f.text(m.text, kMostErrorText);
}
void fields(auto& f, Same<PeerEndpoint> auto& m) {
  f.text(m.process, kMostName), f.text(m.host, kMostName * 8), f.text(m.endpoint, kMostName * 8);
}
void fields(auto& f, Same<PruneCheckpoints> auto& m) {
  f.number(m.command), f.text(m.path, kMostPath), f.numbers(m.steps);
}
void fields(auto& f, Same<Rewind> auto& m) {
  f.number(m.command), f.text(m.path, kMostPath), f.number(m.step);
}
void fields(auto& f, Same<Listening> auto& m) { f.text(m.endpoint, kMostName * 8); }

class FieldWriter {
 public:
  explicit FieldWriter(std::uint8_t kind) { number(kind); }

  template <std::unsigned_integral T>
  void number(T value) {
    bytes(&value, sizeof value);
  }
  void flag(bool value) { number(static_cast<std::uint8_t>(value)); }
  void code(base::ExitCode code) { number(static_cast<std::uint8_t>(base::number(code))); }
  void id(const std::string& id) { bytes(id.data(), ChunkTable::kDigits); }
  // Only error texts can be beyond the limit; they are truncated.
  void text(const std::string& text, std::size_t most) {
    const std::size_t length = std::min(text.size(), most);
    number(static_cast<std::uint32_t>(length));
    bytes(text.data(), length);
  }
  void runs(const std::vector<ChunkRun>& runs) {
    number(static_cast<std::uint32_t>(runs.size()));
    for (const ChunkRun& run : runs) number(run.first), number(run.count);
  }
  void numbers(const std::vector<std::uint64_t>& numbers) {
    number(static_cast<std::uint32_t>(numbers.size()));
    for (const std::uint64_t one : numbers) number(one);
  }
  void rest(const std::vector<std::byte>& content) { bytes(content.data(), content.size()); }

  net::Frame take() { return std::move(frame_); }

 private:
  void bytes(const void* from, std::size_t count) {
    if (count == 0) return;
    const std::size_t at = frame_.size();
    frame_.resize(at + count);
    std::memcpy(frame_.data() + at, from, count);
  }

  net::Frame frame_;
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> frame) : left_(frame) {}

  template <std::unsigned_integral T>
  void number(T& value) {
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
  }
  void flag(bool& value) {
    std::uint8_t byte = 0;
    number(byte);
    if (byte > 1) throw MessageError("transfer message: a flag is neither 0 nor 1");
    value = byte == 1;
  }
  void code(base::ExitCode& code) {
    std::uint8_t byte = 0;
    number(byte);
    code = base::ExitCode{byte};
  }
  void id(std::string& id) {
    id = text_of(take(ChunkTable::kDigits));
    if (!is_content_id(id)) throw MessageError("transfer message: a content id is not a hash");
  }
  void text(std::string& text, std::size_t most) {
    std::uint32_t length = 0;
    number(length);
    if (length > most) throw MessageError("transfer message: a text is longer than its limit");
    text = text_of(take(length));
  }
  void runs(std::vector<ChunkRun>& runs) {
    std::uint32_t count = 0;
    number(count);
    const std::span<const std::byte> bytes = take(count * sizeof(ChunkRun));
    runs.resize(count);
    if (count > 0) std::memcpy(runs.data(), bytes.data(), bytes.size());
  }
  void numbers(std::vector<std::uint64_t>& numbers) {
    std::uint32_t count = 0;
    number(count);
    const std::span<const std::byte> bytes = take(count * sizeof(std::uint64_t));
    numbers.resize(count);
    if (count > 0) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  }
  void rest(std::vector<std::byte>& content) {
    if (left_.empty() || left_.size() > ChunkTable::kChunkBytes) {
      throw MessageError("transfer message: a chunk is empty or too long");
    }
    content.assign(left_.begin(), left_.end());
    left_ = {};
  }
  void finish() const {
    if (!left_.empty()) throw MessageError("transfer message: bytes after the last field");
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > left_.size()) throw MessageError("transfer message: truncated");
    const std::span<const std::byte> taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  static std::string text_of(std::span<const std::byte> bytes) {
    std::string text(bytes.size(), '\0');
    if (!bytes.empty()) std::memcpy(text.data(), bytes.data(), bytes.size());
    return text;
  }

  std::span<const std::byte> left_;
};

static_assert(sizeof(ChunkRun) == 8, "runs have the same layout in memory and on the wire");

template <std::size_t I = 0>
Message read_kind(std::uint8_t kind, FieldReader& reader) {
  if constexpr (I == std::variant_size_v<Message>) {
    throw MessageError("transfer message: unknown kind");
  } else {
    if (kind != I) return read_kind<I + 1>(kind, reader);
    std::variant_alternative_t<I, Message> message;
    fields(reader, message);
    return message;
  }
}

void check_table(const ChunkTable& table) {
  if (!table.well_formed())
    throw MessageError("transfer message: the chunk table is not well formed");
}

}  // namespace

net::Frame format(const Message& message) {
  FieldWriter writer(static_cast<std::uint8_t>(message.index()));
  std::visit([&writer](const auto& m) { fields(writer, m); }, message);
  return writer.take();
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
  FieldReader reader(frame);
  std::uint8_t kind = 0;
  reader.number(kind);
  Message message = read_kind(kind, reader);
  reader.finish();
  if (const auto* fetch = std::get_if<Fetch>(&message)) check_table(fetch->table);
  if (const auto* result = std::get_if<StatResult>(&message)) check_table(result->table);
  return message;
}

}  // namespace strait::transfer::message
