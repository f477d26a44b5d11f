#include "framework/codec/transform_format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "framework/bytes.h"
#include "framework/coding/symbol_model.h"
#include "framework/mixed_bits.h"

namespace strait::codec {
namespace {

using coding::LevelModels;
using coding::SymbolModel;

// Columns take block² bytes a block, which a peer could make us allocate.
constexpr std::int64_t kMostBlock = 4096;
// No model spends less than 1/200 of a bit on a level, so a payload cannot claim more levels.
constexpr std::int64_t kMostLevelsPerByte = 2048;
constexpr std::uint8_t kHasBasis = 1;  // flag

template <class Value>
void put(std::span<const Value> values, net::Frame& frame) {
  append_bytes(frame, std::as_bytes(values));
}
template <class Value>
void put_one(const Value& value, net::Frame& frame) {
  put(std::span(&value, 1), frame);
}

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class Value>
  std::vector<Value> take(std::int64_t count, const char* part) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(Value);
    if (rest_.size() < bytes) {
      throw CodecError(
          fmt::format("a transformed payload ends inside its {}: {} bytes where {} are left", part,
                      bytes, rest_.size()));
    }
    std::vector<Value> values(static_cast<std::size_t>(count));
    // memcpy may not see the null pointer of an empty vector.
    if (bytes != 0) std::memcpy(values.data(), rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return values;
  }
  template <class Value>
  Value next(const char* part) {
    return take<Value>(1, part).front();
  }
  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
};

bool is_size(float value) { return std::isfinite(value) && value > 0; }

// Reads what write_basis() wrote.
BasisPart take_basis(Cursor& cursor, std::int64_t width) {
  BasisPart basis;
  basis.unit = cursor.next<float>("unit");
  basis.block = cursor.next<std::uint32_t>("block size");
  if (!is_size(basis.unit) || basis.block > kMostBlock ||
      (basis.block != 0 && width % basis.block != 0)) {
    throw CodecError(fmt::format("a basis for width {} has blocks of {} and unit {}", width,
                                 basis.block, basis.unit));
  }
  basis.mean = cursor.take<float>(width, "mean");
  basis.spread = cursor.take<std::uint8_t>(width, "spread");
  basis.scales = cursor.take<float>(basis.block == 0 ? 0 : width, "scales");
  basis.columns = cursor.take<std::int8_t>(width * basis.block, "basis");
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!std::ranges::all_of(basis.mean, finite) || !std::ranges::all_of(basis.scales, finite)) {
    throw CodecError("a basis has values that are not finite");
  }
  return basis;
}

LevelModels level_models(const BasisPart& basis, std::uint8_t loudness, SymbolModel::End end) {
  // Quarters of an octave, in 64ths.
  constexpr std::array<std::uint64_t, 4> kQuarters = {64, 76, 91, 108};
  std::vector<std::uint32_t> sizes;
  sizes.reserve(basis.spread.size());
  // Models start from the expected size of their direction: most messages are too short to learn
  // it.
  for (const std::uint8_t spread : basis.spread) {
    const int quarters = std::clamp(loudness + spread - 255, 0, 100);
    const std::uint64_t size = kQuarters.at(static_cast<std::size_t>(quarters % 4))
                               << static_cast<unsigned>(quarters / 4);
    sizes.push_back(static_cast<std::uint32_t>(size / 64));
  }
  return {std::move(sizes), end};
}

std::vector<TransformRow> take_rows(Cursor& cursor, const TensorHeader& header) {
  std::vector<TransformRow> rows;
  rows.reserve(header.rows.rows.size());
  for (const Row& row : header.rows.rows) {
    const auto base = cursor.next<std::uint8_t>("row table");
    if (base > 2 || (base != 0 && row.length() == 0)) {
      throw CodecError(fmt::format("row {} of a transformed payload, of {} tokens, has base {}",
                                   rows.size(), row.length(), base));
    }
    rows.push_back({static_cast<RowBase>(base), 0});
    if (rows.back().base == RowBase::entry) rows.back().mark = cursor.next<std::uint64_t>("mark");
  }
  return rows;
}

std::vector<std::int32_t> take_levels(std::span<const std::byte> bytes, const TensorHeader& header,
                                      LevelModels models) {
  const std::int64_t values = header.rows.tokens() * header.width;
  if (values > kMostLevelsPerByte * std::ssize(bytes)) {
    throw CodecError(
        fmt::format("a transformed payload has {} bytes for {} levels", bytes.size(), values));
  }
  std::vector<std::int32_t> levels(static_cast<std::size_t>(values));
  coding::LaneReader reader(bytes);
  const auto width = static_cast<std::size_t>(header.width);
  for (std::size_t at = 0; at < levels.size(); at += width) {
    models.take(reader, std::span(levels).subspan(at, width));
  }
  std::vector<std::byte> plain;
  if (!reader.finish(0, plain)) {
    throw CodecError("a transformed payload does not end with its last level");
  }
  return levels;
}

}  // namespace

BasisPart first_basis(std::int64_t width) {
  const auto size = static_cast<std::size_t>(width);
  BasisPart first;
  first.mean.resize(size);
  first.spread.assign(size, 255);
  return first;
}

float dither_of(std::uint64_t seed, std::uint64_t i) {
  // The whole numbers below 2^24 are floats exactly, so both ends add the same dither.
  constexpr int kBits = 24;  // of a float's fraction
  const auto drawn = static_cast<std::int64_t>(mixed_bits(seed + i) >> (64U - kBits));
  return static_cast<float>(drawn - (std::int64_t{1} << (kBits - 1))) * 0x1p-24F;
}

void write_basis(const BasisPart& basis, net::Frame& frame) {
  put_one(basis.unit, frame);
  put_one(static_cast<std::uint32_t>(basis.block), frame);
  put(std::span(basis.mean), frame);
  put(std::span(basis.spread), frame);
  put(std::span(basis.scales), frame);
  put(std::span(basis.columns), frame);
}

BasisPart read_basis(std::span<const std::byte> bytes, std::int64_t width) {
  Cursor cursor(bytes);
  BasisPart basis = take_basis(cursor, width);
  if (cursor.rest().empty()) return basis;
  throw CodecError(fmt::format("a basis has {} bytes more than it takes", cursor.rest().size()));
}

void write_transform_head(Kind kind, const TransformMessage& message, net::Frame& frame) {
  put_one(kTransformFormat, frame);
  put_one(message.basis ? kHasBasis : std::uint8_t{0}, frame);
  put_one(message.generation, frame);
  put_one(message.loudness, frame);
  if (message.basis) write_basis(*message.basis, frame);
  if (kind == Kind::backward) {
    put_one(message.level_size, frame);
    put_one(message.dither, frame);
  } else {
    put_one(message.level_units, frame);
    for (const TransformRow& row : message.rows) {
      put_one(static_cast<std::uint8_t>(row.base), frame);
      if (row.base == RowBase::entry) put_one(row.mark, frame);
    }
  }
}

void write_levels(const TransformMessage& message, const BasisPart& basis, net::Frame& frame) {
  coding::LaneWriter writer;
  // A level takes one or two symbols: its size, and what exceeds the table.
  writer.reserve(message.levels.size() + message.levels.size() / 2);
  LevelModels models = level_models(basis, message.loudness, SymbolModel::End::writer);
  const std::size_t width = basis.spread.size();
  for (std::size_t at = 0; at < message.levels.size(); at += width) {
    models.put(writer, std::span(message.levels).subspan(at, width));
  }
  writer.finish({}, frame);
}

TransformMessage read_transform(const TensorHeader& header, std::span<const std::byte> payload,
                                std::uint8_t generation, const BasisPart& basis) {
  Cursor cursor(payload);
  const auto format = cursor.next<std::uint8_t>("format");
  const auto flags = cursor.next<std::uint8_t>("flags");
  if (format != kTransformFormat || flags > kHasBasis || header.width < 1) {
    throw CodecError(fmt::format(
        "a transformed payload has format {}, flags {} and width {}; this end reads format {}",
        format, flags, header.width, kTransformFormat));
  }
  TransformMessage message;
  message.generation = cursor.next<std::uint8_t>("generation");
  message.loudness = cursor.next<std::uint8_t>("loudness");
  if (flags == kHasBasis) {
    message.basis = take_basis(cursor, header.width);
  } else if (message.generation != generation || std::ssize(basis.spread) != header.width) {
    throw CodecError(fmt::format(
        "a message of width {} is in basis {} of its sender, and this end has basis {} of width "
        "{}; resume all processes from a checkpoint",
        header.width, message.generation, generation, basis.spread.size()));
  }
  if (header.kind == Kind::backward) {
    message.level_size = cursor.next<float>("level size");
    message.dither = cursor.next<std::uint64_t>("dither");
  } else {
    message.level_units = cursor.next<std::uint32_t>("level size");
    message.rows = take_rows(cursor, header);
  }
  if (!is_size(message.level_size) || message.level_units < 1 ||
      message.level_units > kMostLevelUnits) {
    throw CodecError(fmt::format("a transformed payload has levels of {} units or size {}",
                                 message.level_units, message.level_size));
  }
  const BasisPart& used = message.basis ? *message.basis : basis;
  message.levels = take_levels(cursor.rest(), header,
                               level_models(used, message.loudness, SymbolModel::End::reader));
  return message;
}

std::uint64_t entry_mark(std::span<const std::byte> entry, std::uint8_t generation) {
  // The generation replaces hash bits, so that a cache needs no second field for it.
  return (entry_hash(entry) & ~std::uint64_t{0xff}) | generation;
}

}  // namespace strait::codec
