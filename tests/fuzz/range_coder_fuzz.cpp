// libFuzzer target: the input's first half says what kinds of symbols come; they are read from any
// bytes at all, and what was read is written and read again to the same symbols.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "framework/sync/range_coder.h"
#include "framework/sync/symbol_model.h"

using strait::sync::RangeDecoder;
using strait::sync::SymbolModel;

namespace {

// A model's symbol, plain bits, or one of some.
std::vector<std::uint32_t> read_symbols(std::span<const std::uint8_t> kinds,
                                        RangeDecoder& decoder) {
  std::vector<std::uint32_t> symbols;
  SymbolModel model;
  for (const std::uint8_t kind : kinds) {
    if (kind < 100) {
      symbols.push_back(static_cast<std::uint32_t>(model.take(decoder)));
    } else if (kind < 124) {
      symbols.push_back(decoder.place(kind - 99U));
      decoder.take(symbols.back(), 1);
    } else {
      symbols.push_back(decoder.uniform(kind * 100'003U));
    }
  }
  return symbols;
}

strait::net::Frame write_symbols(std::span<const std::uint8_t> kinds,
                                 const std::vector<std::uint32_t>& symbols) {
  strait::sync::RangeEncoder encoder;
  SymbolModel model;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] < 100) {
      model.put(encoder, symbols[i]);
    } else if (kinds[i] < 124) {
      encoder.put(symbols[i], 1, kinds[i] - 99U);
    } else {
      encoder.put_uniform(symbols[i], kinds[i] * 100'003U);
    }
  }
  strait::net::Frame frame;
  encoder.finish(frame);
  return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span kinds(data, size / 2);
  RangeDecoder any(std::as_bytes(std::span(data + size / 2, size - size / 2)));
  const auto symbols = read_symbols(kinds, any);
  const strait::net::Frame frame = write_symbols(kinds, symbols);
  RangeDecoder own(frame);
  if (read_symbols(kinds, own) != symbols || !own.finish()) std::abort();
  return 0;
}
