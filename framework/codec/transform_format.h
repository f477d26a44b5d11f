#pragma once

#include "framework/codec/message.h"
#include "framework/codec/sample_format.h"

namespace strait::codec {

// The payload of codec `transform`; the page is MESSAGE.md. All errors that a peer could make are
// found here, without libtorch, before a payload changes anything.
inline constexpr std::uint8_t kTransformFormat = 2;  // first byte of the payload
inline constexpr std::int32_t kMostEntry = 32767;    // of an entry, in units
inline constexpr std::uint32_t kMostLevelUnits = 1U << 20U;

// Directions in which the values of a token are coded, `block` neighbouring values at a time, as
// both ends have them: values = mean + unit * columns * coordinates.
struct BasisPart {
  float unit = 1;           // 1 in an entry of a cache
  std::int64_t block = 0;   // 0: the coordinates are the values
  std::vector<float> mean;  // of values
  // The expected sizes of coordinates, in quarters of an octave; 255: the largest.
  std::vector<std::uint8_t> spread;
  std::vector<float> scales;         // of columns; empty without blocks
  std::vector<std::int8_t> columns;  // [width / block][block values][block coordinates]

  bool operator==(const BasisPart&) const = default;
};

// Before anything was sent: the values themselves.
BasisPart first_basis(std::int64_t width);

void write_basis(const BasisPart& basis, net::Frame& frame);
// Throws CodecError.
BasisPart read_basis(std::span<const std::byte> bytes, std::int64_t width);

struct TransformRow {
  RowBase base = RowBase::none;
  std::uint64_t mark = 0;  // of the entry, with RowBase::entry
};

struct TransformMessage {
  std::uint8_t generation = 0;       // of the basis; 0: first_basis()
  std::uint8_t loudness = 0;         // the expected size of the largest coordinates, as spread
  std::optional<BasisPart> basis;    // if this message is the first in its generation
  std::uint32_t level_units = 1;     // activations: units of a level
  float level_size = 1;              // gradients: what a level stands for
  std::uint64_t dither = 0;          // gradients: seeds what was added to each before rounding
  std::vector<TransformRow> rows;    // of activations, in the order of the header
  std::vector<std::int32_t> levels;  // [tokens of all rows][width]
};

// What is added to the i-th value of a message, in levels: between -1/2 and 1/2.
float dither_of(std::uint64_t seed, std::uint64_t i);

// Both append a part of the payload of a message of this kind: all but the levels, and these.
// `basis`: of the message's generation.
void write_transform_head(Kind kind, const TransformMessage& message, net::Frame& frame);
void write_levels(const TransformMessage& message, const BasisPart& basis, net::Frame& frame);

// `generation` and `basis`: of this end. Throws CodecError, also if the message needs another one.
TransformMessage read_transform(const TensorHeader& header, std::span<const std::byte> payload,
                                std::uint8_t generation, const BasisPart& basis);

// What both ends store with an entry: a hash of its bytes, and the generation in the last byte.
std::uint64_t entry_mark(std::span<const std::byte> entry, std::uint8_t generation);

}  // namespace strait::codec
