#include "launcher/plan/boundary_forecast.h"

#include "framework/codec/sample_format.h"
#include "kernels/group_format.h"

namespace strait::launcher {
namespace {

// Of a tensor's head and of a row in it, as framework/codec/MESSAGE.md lays them out.
constexpr double kMessageHead = 28;
constexpr double kRowHead = 12;
constexpr double kDocument = 4;

double token_payload(const Recipe::Codec& settings, std::int64_t bits, std::int64_t width) {
  if (bits == codec::kWholeBits) return 2.0 * static_cast<double>(width);
  const kernels::GroupFormat format{static_cast<int>(bits), static_cast<int>(settings.group),
                                    settings.rotate};
  return static_cast<double>(kernels::token_bytes(format, width));
}

double raw_token(const Recipe::Codec& settings, std::int64_t width) {
  return static_cast<double>(width) * (settings.wire_dtype == WireDtype::float32 ? 4 : 2);
}

kernels::EntryKind entry_kind(const Recipe::Codec& settings) {
  return settings.cache_kind == CacheKind::bfloat16 ? kernels::EntryKind::bfloat16
                                                    : kernels::EntryKind::eight_bits;
}

}  // namespace

bool remembers(const Recipe::Codec& settings) {
  return settings.forward == CodecKind::delta || settings.forward == CodecKind::automatic;
}

std::int64_t entry_bytes(const Recipe::Codec& settings, std::int64_t row_tokens,
                         std::int64_t width) {
  return kernels::entry_bytes(entry_kind(settings), row_tokens, width);
}

BoundaryBytes boundary_bytes(const Recipe::Codec& settings, const BoundaryLoad& load) {
  const auto rows = static_cast<double>(load.rows);
  const double head = kMessageHead + rows * (kRowHead + kDocument * load.documents_per_row);
  const double tokens = rows * load.tokens_per_row;
  const double raw = head + tokens * raw_token(settings, load.width);
  const auto quantised = [&](std::int64_t bits, codec::RowBase base) {
    return head + static_cast<double>(codec::kPayloadHeadBytes) +
           rows * static_cast<double>(codec::head_bytes(base)) +
           tokens * token_payload(settings, bits, load.width);
  };
  BoundaryBytes bytes;
  using codec::RowBase;
  bytes.known_forward = raw;
  if (settings.forward == CodecKind::fixed) {
    bytes.known_forward = quantised(settings.forward_bits, RowBase::none);
  }
  bytes.first_forward = bytes.known_forward;
  if (remembers(settings)) {
    bytes.known_forward = quantised(settings.forward_bits, RowBase::entry);
    bytes.first_forward = quantised(settings.first_bits, RowBase::fresh);
  }
  bytes.backward = raw;
  if (settings.backward != CodecKind::raw) {
    bytes.backward = quantised(settings.backward_bits, RowBase::none);
  }
  return bytes;
}

}  // namespace strait::launcher
