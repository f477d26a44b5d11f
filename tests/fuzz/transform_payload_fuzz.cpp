// libFuzzer target: any bytes as the payload of a transformed message of activations and of
// gradients, with a first byte that is right. What is not refused in a CodecError has a level for
// each value, none larger than a writer makes it, and a basis that is written as it was read.
#include <cstdlib>

#include "framework/codec/transform_format.h"
#include "framework/coding/symbol_model.h"

namespace {

using namespace strait::codec;

void check(const TensorHeader& header, const TransformMessage& message) {
  const auto values = static_cast<std::size_t>(header.rows.tokens() * header.width);
  if (message.levels.size() != values) std::abort();
  for (const std::int32_t level : message.levels) {
    if (std::abs(level) > strait::coding::LevelModels::kMost) std::abort();
  }
  if (header.kind == Kind::forward && message.rows.size() != header.rows.rows.size()) std::abort();
  if (!message.basis) return;
  strait::net::Frame written;
  write_basis(*message.basis, written);
  if (read_basis(written, header.width) != *message.basis) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes{std::byte{kTransformFormat}};
  const auto* from = reinterpret_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), from, from + size);
  for (const Kind kind : {Kind::forward, Kind::backward}) {
    TensorHeader header;
    header.kind = kind;
    header.width = 16;
    header.rows.padded_length = 3;
    header.rows.rows = {{strait::store::SampleId{4}, {2, 1}}, {strait::store::SampleId{5}, {1}}};
    try {
      check(header, read_transform(header, bytes, 1, first_basis(header.width)));
    } catch (const CodecError& error) {
      if (*error.what() == '\0') std::abort();
    }
  }
  return 0;
}
