#include "framework/codec/sample_decoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <stdexcept>

#include "framework/codec/message.h"
#include "kernels/apply_change.h"
#include "kernels/dequantize.h"

namespace strait::codec {

SampleDecoder::SampleDecoder(at::ScalarType result, std::unique_ptr<ActivationCache> cache)
    : result_(result), element_(element_of(result)), cache_(std::move(cache)), pool_(result) {}

Memory SampleDecoder::memory() const {
  return cache_ == nullptr ? Memory{} : Memory{cache_->options().kind};
}

// Called before memory of the sizes in the header is allocated.
void SampleDecoder::check_fits(const TensorHeader& head) const {
  if (head.evaluation) throw std::logic_error("a training decoder is given an evaluation tensor");
  if (cache_ == nullptr) return;
  const ActivationCacheOptions& options = cache_->options();
  if (head.width != options.width || head.rows.padded_length > options.row_tokens) {
    throw CodecError(
        fmt::format("a message has rows of {} tokens of width {}; this run's have at "
                    "most {} of width {}",
                    head.rows.padded_length, head.width, options.row_tokens, options.width));
  }
}

Decoded SampleDecoder::decode(const TensorHeader& head, std::span<const std::byte> payload) {
  check_fits(head);
  SamplePayload rows(head, payload, memory());
  if (cache_ != nullptr) cache_->begin_step(head.step);
  pin(head, rows);
  const std::array<std::int64_t, 3> shape{head.rows.size(), head.rows.padded_length, head.width};
  Decoded decoded{pool_.take(shape), {}};
  auto* to = static_cast<std::byte*>(decoded.values.mutable_data_ptr());
  const auto token_bytes = static_cast<std::size_t>(head.width * kernels::bytes_of(element_));
  const std::size_t row_bytes = static_cast<std::size_t>(head.rows.padded_length) * token_bytes;
  for (std::size_t place = 0; place < head.rows.rows.size(); ++place, to += row_bytes) {
    const Row& row = head.rows.rows[place];
    const std::int64_t tokens = row.length();
    const SamplePayload::Part part = rows.next();
    if (!decode_row(part, rows.group(), row.sample, {to, element_, tokens, head.width})) {
      decoded.missing.push_back(static_cast<std::int64_t>(place));
    }
    const std::size_t used = static_cast<std::size_t>(tokens) * token_bytes;
    if (used != row_bytes) std::memset(to + used, 0, row_bytes - used);
  }
  traffic_.rows += static_cast<std::uint64_t>(head.rows.size());
  traffic_.raw_bytes += static_cast<std::uint64_t>(head.rows.tokens() * head.width) * sizeof(float);
  traffic_.payload_bytes += payload.size();
  return decoded;
}

// Marks the entries of all rows as used in this step before any is added, so that none is evicted
// while the message is decoded, one that is to be replaced neither. The sender does the same, which
// keeps both caches equal.
void SampleDecoder::pin(const TensorHeader& head, SamplePayload payload) {
  if (cache_ == nullptr) return;
  for (const Row& row : head.rows.rows) {
    if (payload.next().head.base != RowBase::none) cache_->find(row.sample);
  }
}

std::span<std::byte> SampleDecoder::room_for(store::SampleId sample, std::int64_t tokens) {
  const std::span<std::byte> entry = cache_->keep_always(sample, tokens);
  if (entry.empty()) {
    throw CodecError(fmt::format("a peer caches more rows of one step than the {} that fit here",
                                 cache_->entries()));
  }
  return entry;
}

bool SampleDecoder::decode_row(const SamplePayload::Part& part, int group, store::SampleId sample,
                               const kernels::MutableValues& out) {
  const kernels::GroupFormat format{part.head.bits, group, part.head.rotate};
  const bool wide = part.head.bits == kWholeBits;
  if (wide) wide_.copy(part.data);
  if (part.head.base == RowBase::none) {
    if (wide) {
      wide_.read_into(out);
    } else {
      kernels::dequantize(part.data.data(), format, out);
    }
    return true;
  }
  const kernels::CacheFormat kind = cache_->options().kind;
  if (part.head.base == RowBase::fresh) {
    const std::span<std::byte> entry = room_for(sample, out.tokens);
    ++traffic_.first_visits;
    if (wide) {
      kernels::store_entry(wide_.values(out.tokens, out.width), kind, entry.data());
      kernels::load_entry(kind, entry.data(), out);
    } else {
      kernels::apply_change(part.data.data(), format, kind, true, entry.data(), out);
    }
    return true;
  }
  ++traffic_.hits;
  const std::span<std::byte> entry = cache_->find(sample);
  const auto size = static_cast<std::size_t>(kernels::entry_bytes(kind, out.tokens, out.width));
  if (entry.size() != size || entry_hash(entry) != part.head.hash) return false;
  kernels::apply_change(part.data.data(), format, kind, false, entry.data(), out);
  return true;
}

void SampleDecoder::complete(const TensorHeader& head, std::span<const std::byte> payload,
                             std::span<const std::int64_t> places, const at::Tensor& values) {
  if (cache_ == nullptr) return Decoder::complete(head, payload, places, values);
  check_fits(head);
  const kernels::CacheFormat kind = cache_->options().kind;
  if (places.size() != head.rows.rows.size() || values.scalar_type() != result_ ||
      values.dim() != 3 || values.size(2) != head.width ||
      values.size(1) != head.rows.padded_length) {
    throw CodecError(
        fmt::format("a peer sends {} rows of width {} again where {} of width {} were "
                    "asked for",
                    head.rows.size(), head.width, places.size(), values.size(-1)));
  }
  if (cache_->step() != head.step) {
    throw CodecError(fmt::format("a peer sends rows of step {} again, which is not this step's",
                                 number(head.step)));
  }
  std::span<const std::byte> rest = read_whole(head, payload, kind);
  auto* to = static_cast<std::byte*>(values.mutable_data_ptr());
  const std::int64_t row_bytes = head.rows.padded_length * head.width * kernels::bytes_of(element_);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t tokens = head.rows.rows[i].length();
    if (tokens == 0 || places[i] < 0 || places[i] >= values.size(0)) {
      throw CodecError(fmt::format("a peer sends {} tokens again for row {} of {}", tokens,
                                   places[i], values.size(0)));
    }
    const std::span<std::byte> entry = room_for(head.rows.rows[i].sample, tokens);
    std::memcpy(entry.data(), rest.data(), entry.size());
    rest = rest.subspan(entry.size());
    kernels::load_entry(kind, entry.data(),
                        {to + places[i] * row_bytes, element_, tokens, head.width});
  }
  traffic_.resends += static_cast<std::uint64_t>(head.rows.size());
  traffic_.payload_bytes += payload.size();
}

Traffic SampleDecoder::traffic() const {
  Traffic traffic = traffic_;
  if (cache_ != nullptr) {
    traffic.evictions = cache_->evictions();
    traffic.cache_bytes = cache_->bytes();
  }
  return traffic;
}

}  // namespace strait::codec
