#include "framework/sync/model_checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// A round hashes about a megabyte of values, so that its cost does not grow with the model.
constexpr std::int64_t kValuesAtOnce = std::int64_t{1} << 18;
// Pieces of a round, about: each one's entry takes bytes on the wire, of which rounds of small
// models have few.
constexpr std::int64_t kPiecesAtOnce = 8;
// All pieces are hashed within this many rounds, however large the model is.
constexpr std::int64_t kMostShares = 64;
constexpr std::size_t kEntryBytes = sizeof(std::uint32_t) + sizeof(std::uint64_t);

}  // namespace

std::vector<std::size_t> checked_pieces(const Layout& layout, std::uint64_t round) {
  const auto pieces = static_cast<std::int64_t>(layout.pieces().size());
  const auto wanted = std::max(layout.size() / kValuesAtOnce, pieces / kPiecesAtOnce);
  const auto shares = static_cast<std::uint64_t>(std::clamp<std::int64_t>(wanted, 1, kMostShares));
  std::vector<std::size_t> checked;
  for (std::size_t i = round % shares; i < layout.pieces().size(); i += shares) {
    checked.push_back(i);
  }
  return checked;
}

ModelChecksum checksum_model(const Slots& slots, const std::string& slot, std::uint64_t round) {
  const Layout& layout = slots.layout();
  ModelChecksum checksum;
  for (const std::size_t i : checked_pieces(layout, round)) {
    const std::span<const std::byte> bytes = slots.bytes(slot, layout.pieces()[i].range);
    checksum.pieces.push_back(
        {static_cast<std::uint32_t>(i), XXH3_64bits(bytes.data(), bytes.size())});
  }
  return checksum;
}

void append_checksum(const ModelChecksum& checksum, net::Frame& out) {
  std::size_t at = out.size();
  out.resize(at + checksum.pieces.size() * kEntryBytes);
  for (const ModelChecksum::Piece& piece : checksum.pieces) {
    std::memcpy(out.data() + at, &piece.index, sizeof piece.index);
    std::memcpy(out.data() + at + sizeof piece.index, &piece.hash, sizeof piece.hash);
    at += kEntryBytes;
  }
}

ModelChecksum read_checksum(std::span<const std::byte> bytes) {
  if (bytes.size() % kEntryBytes != 0) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a replica sent a model checksum of {} bytes, which is not a whole "
                                "number of entries of {}",
                                bytes.size(), kEntryBytes));
  }
  ModelChecksum checksum;
  checksum.pieces.resize(bytes.size() / kEntryBytes);
  const std::byte* from = bytes.data();
  for (ModelChecksum::Piece& piece : checksum.pieces) {
    std::memcpy(&piece.index, from, sizeof piece.index);
    std::memcpy(&piece.hash, from + sizeof piece.index, sizeof piece.hash);
    from += kEntryBytes;
  }
  return checksum;
}

std::vector<std::string> differences(const Layout& layout, const ModelChecksum& mine,
                                     const ModelChecksum& theirs) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < mine.pieces.size(); ++i) {
    const bool same = i < theirs.pieces.size() && theirs.pieces[i].index == mine.pieces[i].index &&
                      theirs.pieces[i].hash == mine.pieces[i].hash;
    if (!same) names.push_back(layout.pieces()[mine.pieces[i].index].spec.name);
  }
  return names;
}

}  // namespace strait::sync
