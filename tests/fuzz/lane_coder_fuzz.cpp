// libFuzzer target: the input's first half says what kinds of symbols come; they are read from any
// bytes at all, and what was read is written and read again to the same symbols.
#include <cstdlib>

#include "framework/coding/lane_coder.h"
#include "framework/coding/symbol_model.h"

using strait::coding::kLanes;
using strait::coding::kMostScaleBits;
using strait::coding::LaneReader;
using strait::coding::LaneWriter;
using strait::coding::SymbolModel;

namespace {

constexpr std::uint8_t kModelled = 100;  // kinds below

unsigned plain_bits(std::uint8_t kind) { return (kind - kModelled) % (kMostScaleBits + 1); }

// A model's symbol, or one of 2^bits.
std::vector<std::uint32_t> read_symbols(std::span<const std::uint8_t> kinds, LaneReader& reader) {
  std::vector<std::uint32_t> symbols;
  SymbolModel model({}, SymbolModel::End::reader);
  for (const std::uint8_t kind : kinds) {
    const std::size_t lane = symbols.size() % kLanes;
    if (kind < kModelled) {
      symbols.push_back(static_cast<std::uint32_t>(model.take(reader, lane)));
    } else {
      symbols.push_back(reader.peek(lane, plain_bits(kind)));
      reader.take(lane, symbols.back(), 1, plain_bits(kind));
    }
  }
  return symbols;
}

strait::net::Frame write_symbols(std::span<const std::uint8_t> kinds,
                                 const std::vector<std::uint32_t>& symbols) {
  LaneWriter writer;
  SymbolModel model({}, SymbolModel::End::writer);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] < kModelled) {
      model.put(writer, i % kLanes, symbols[i]);
    } else {
      writer.put(i % kLanes, symbols[i], 1, plain_bits(kinds[i]));
    }
  }
  strait::net::Frame frame;
  writer.finish({}, frame);
  return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span kinds(data, size / 2);
  LaneReader any(std::as_bytes(std::span(data + size / 2, size - size / 2)));
  const auto symbols = read_symbols(kinds, any);
  std::vector<std::byte> plain;
  (void)any.finish(data[0] % 64, plain);
  const strait::net::Frame frame = write_symbols(kinds, symbols);
  LaneReader own(frame);
  if (read_symbols(kinds, own) != symbols || !own.finish(0, plain)) std::abort();
  return 0;
}
