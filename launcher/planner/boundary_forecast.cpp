#include "launcher/planner/boundary_forecast.h"

#include <ATen/core/ScalarType.h>

#include "framework/codec/codecs.h"
#include "kernels/group_format.h"

namespace strait::planner {
namespace {

// Of a tensor's head and of a row in it, as framework/codec/MESSAGE.md lays them out.
constexpr double kMessageHeaderBytes = 28;
constexpr double kRowHeaderBytes = 12;
constexpr double kDocument = 4;

codec::CodecSettings settings_of(const recipe::Recipe::Codec& recipe, std::int64_t bits) {
  codec::CodecSettings settings;
  settings.bits = static_cast<int>(bits);
  settings.first_bits = static_cast<int>(recipe.first_bits);
  settings.group = static_cast<int>(recipe.group);
  settings.rotate = recipe.rotate;
  settings.wire = recipe.wire_dtype == recipe::WireDtype::float32    ? at::kFloat
                  : recipe.wire_dtype == recipe::WireDtype::bfloat16 ? at::kBFloat16
                                                                     : at::kHalf;
  return settings;
}

kernels::CacheFormat entry_kind(const recipe::Recipe::Codec& settings) {
  return settings.cache_kind == recipe::CacheKind::bfloat16 ? kernels::CacheFormat::bfloat16
                                                            : kernels::CacheFormat::eight_bits;
}

}  // namespace

bool remembers(const recipe::Recipe::Codec& settings) {
  return codec::codecs().named(settings.forward).remembers != codec::CodecOffer::Remembers::nothing;
}

std::int64_t entry_bytes(const recipe::Recipe::Codec& settings, std::int64_t row_tokens,
                         std::int64_t width) {
  return kernels::entry_bytes(entry_kind(settings), row_tokens, width);
}

BoundaryBytes boundary_bytes(const recipe::Recipe::Codec& recipe, const BoundaryLoad& load) {
  const auto rows = static_cast<double>(load.rows);
  const double head =
      kMessageHeaderBytes + rows * (kRowHeaderBytes + kDocument * load.documents_per_row);
  const codec::PayloadLoad carried{rows, rows * load.tokens_per_row, load.width};
  codec::CodecSettings forward = settings_of(recipe, recipe.forward_bits);
  forward.remembers = remembers(recipe);
  const codec::PayloadBytes down = codec::codecs().named(recipe.forward).payload(forward, carried);
  const codec::PayloadBytes up = codec::codecs()
                                     .named(recipe.backward)
                                     .payload(settings_of(recipe, recipe.backward_bits), carried);
  return {head + down.first, head + down.known, head + up.known};
}

}  // namespace strait::planner
