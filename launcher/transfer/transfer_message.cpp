#include "launcher/transfer/transfer_message.h"

#include <bit>
#include <concepts>
#include <cstring>
#include <type_traits>
#include <utility>

namespace strait::transfer::ship {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr std::size_t kMostPath = 4096;
constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostSentence = std::size_t{64} << 10;
constexpr std::size_t kMostSmallFile = std::size_t{16} << 20;
constexpr std::size_t kMostHashes = std::size_t{ChunkTable::kMostChunks} * ChunkTable::kDigits;

template <class T, class U>
concept Same = std::same_as<std::remove_const_t<T>, U>;

// The one list of fields of each message: read by the writer and by the reader.
void parts(auto& f, Same<ChunkTable> auto& m) {
  f.number(m.size), f.text(m.whole, ChunkTable::kDigits), f.text(m.chunks, kMostHashes);
}
void parts(auto& f, Same<Seek> auto& m) { f.id(m.id); }
void parts(auto& f, Same<Have> auto& m) { f.id(m.id), f.runs(m.runs); }
void parts(auto& f, Same<Get> auto& m) { f.id(m.id), f.number(m.chunk), f.flag(m.insist); }
void parts(auto& f, Same<Chunk> auto& m) { f.id(m.id), f.number(m.chunk), f.rest(m.content); }
void parts(auto& f, Same<Elsewhere> auto& m) {
  f.id(m.id), f.number(m.chunk), f.text(m.process, kMostName);
}
void parts(auto& f, Same<Missing> auto& m) { f.id(m.id), f.number(m.chunk); }
void parts(auto& f, Same<Look> auto& m) { f.number(m.order), f.text(m.path, kMostPath); }
void parts(auto& f, Same<Bring> auto& m) {
  f.number(m.order), parts(f, m.table), f.runs(m.runs), f.text(m.path, kMostPath);
}
void parts(auto& f, Same<Put> auto& m) {
  f.number(m.order), f.text(m.path, kMostPath), f.text(m.text, kMostSmallFile);
}
void parts(auto& f, Same<Forget> auto& m) { f.number(m.order); }
void parts(auto& f, Same<Seen> auto& m) { f.number(m.order), parts(f, m.table); }
void parts(auto& f, Same<Brought> auto& m) { f.number(m.order), f.number(m.fetched); }
void parts(auto& f, Same<Refused> auto& m) {
  f.number(m.order), f.code(m.code), f.text(m.text, kMostSentence);
}
void parts(auto& f, Same<Neighbour> auto& m) {
  f.text(m.process, kMostName), f.text(m.host, kMostName * 8), f.text(m.endpoint, kMostName * 8);
}
void parts(auto& f, Same<Prune> auto& m) {
  f.number(m.order), f.text(m.path, kMostPath), f.numbers(m.steps);
}
void parts(auto& f, Same<Rewind> auto& m) {
  f.number(m.order), f.text(m.path, kMostPath), f.number(m.step);
}
void parts(auto& f, Same<Listening> auto& m) { f.text(m.endpoint, kMostName * 8); }

class PartWriter {
 public:
  explicit PartWriter(std::uint8_t kind) { number(kind); }

  template <std::unsigned_integral T>
  void number(T value) {
    bytes(&value, sizeof value);
  }
  void flag(bool value) { number(static_cast<std::uint8_t>(value)); }
  void code(base::ExitCode code) { number(static_cast<std::uint8_t>(base::number(code))); }
  void id(const std::string& id) { bytes(id.data(), ChunkTable::kDigits); }
  // What is too long for the other side's limits is a sentence of ours, and is cut.
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

class PartReader {
 public:
  explicit PartReader(std::span<const std::byte> frame) : left_(frame) {}

  template <std::unsigned_integral T>
  void number(T& value) {
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
  }
  void flag(bool& value) {
    std::uint8_t byte = 0;
    number(byte);
    if (byte > 1) throw MessageError("a shipping message has a flag that is neither 0 nor 1");
    value = byte == 1;
  }
  void code(base::ExitCode& code) {
    std::uint8_t byte = 0;
    number(byte);
    code = base::ExitCode{byte};
  }
  void id(std::string& id) {
    id = text_of(take(ChunkTable::kDigits));
    if (!is_content_id(id)) throw MessageError("a shipping message names content by no hash");
  }
  void text(std::string& text, std::size_t most) {
    std::uint32_t length = 0;
    number(length);
    if (length > most) throw MessageError("a shipping message holds a text beyond its limit");
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
      throw MessageError("a shipping message holds a chunk of an impossible size");
    }
    content.assign(left_.begin(), left_.end());
    left_ = {};
  }
  void finish() const {
    if (!left_.empty()) throw MessageError("a shipping message is longer than its fields");
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > left_.size()) throw MessageError("a shipping message is cut short");
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

static_assert(sizeof(ChunkRun) == 8, "runs travel as they lie in memory");

template <std::size_t I = 0>
Message read_kind(std::uint8_t kind, PartReader& reader) {
  if constexpr (I == std::variant_size_v<Message>) {
    throw MessageError("a shipping message is of an unknown kind");
  } else {
    if (kind != I) return read_kind<I + 1>(kind, reader);
    std::variant_alternative_t<I, Message> message;
    parts(reader, message);
    return message;
  }
}

void check_table(const ChunkTable& table) {
  if (!table.well_formed()) throw MessageError("a shipping message holds a table that is none");
}

}  // namespace

net::Frame format(const Message& message) {
  PartWriter writer(static_cast<std::uint8_t>(message.index()));
  std::visit([&writer](const auto& m) { parts(writer, m); }, message);
  return writer.take();
}

net::Frame chunk_frame(const std::string& id, std::uint32_t chunk, std::size_t bytes,
                       std::span<std::byte>& content) {
  net::Frame frame = format(Chunk{id, chunk, {}});
  const std::size_t head = frame.size();
  frame.resize(head + bytes);
  content = std::span<std::byte>(frame).subspan(head);
  return frame;
}

Message parse_message(std::span<const std::byte> frame) {
  PartReader reader(frame);
  std::uint8_t kind = 0;
  reader.number(kind);
  Message message = read_kind(kind, reader);
  reader.finish();
  if (const auto* bring = std::get_if<Bring>(&message)) check_table(bring->table);
  if (const auto* seen = std::get_if<Seen>(&message)) check_table(seen->table);
  return message;
}

}  // namespace strait::transfer::ship
