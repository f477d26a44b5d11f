#include "framework/codec/sample_decoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "framework/codec/message.h"
#include "kernels/kernel_tensors.h"
#include "kernels/row_quantization.h"

namespace strait::codec {

SampleDecoder::SampleDecoder(at::ScalarType result, std::unique_ptr<ActivationCache> cache,
                             at::Device device)
    : result_(result),
      element_(kernels::element_of(result)),
      cache_(std::move(cache)),
      pool_(result) {
  if (!device.is_cpu()) device_.emplace(device);
}

Decoded SampleDecoder::decode(const TensorHeader& header, std::span<const std::byte> payload) {
  if (header.evaluation) throw std::logic_error("a training decoder is given an evaluation tensor");
  SamplePayload rows(header, payload, cache_ != nullptr);
  // The last message's kernels may still write entries that this message reads.
  if (device_) device_->wait();
  if (cache_ != nullptr) cache_->begin_step(header.step);
  pin(header, rows);
  Decoded decoded = device_ && fits_device(header, rows) ? decode_on_device(header, payload, rows)
                                                         : decode_on_host(header, rows);
  ++traffic_.messages;
  traffic_.rows += static_cast<std::uint64_t>(header.rows.size());
  traffic_.raw_bytes += header.raw_bytes();
  traffic_.payload_bytes += payload.size();
  return decoded;
}

Decoded SampleDecoder::decode_on_host(const TensorHeader& header, SamplePayload& rows) {
  const std::array<std::int64_t, 3> shape{header.rows.size(), header.rows.padded_length,
                                          header.width};
  Decoded decoded{pool_.take(shape), {}};
  auto* to = static_cast<std::byte*>(decoded.values.mutable_data_ptr());
  const auto token_bytes = static_cast<std::size_t>(header.width * kernels::bytes_of(element_));
  const std::size_t row_bytes = static_cast<std::size_t>(header.rows.padded_length) * token_bytes;
  for (std::size_t place = 0; place < header.rows.rows.size(); ++place, to += row_bytes) {
    const Row& row = header.rows.rows[place];
    const std::int64_t tokens = row.length();
    const SamplePayload::Part part = rows.next();
    if (const auto base = base_of(part, row, header.width)) {
      decode_row(part, rows.group(), *base, {to, element_, tokens, header.width});
    } else {
      decoded.missing.push_back(static_cast<std::int64_t>(place));
    }
    const std::size_t used = static_cast<std::size_t>(tokens) * token_bytes;
    if (used != row_bytes) std::memset(to + used, 0, row_bytes - used);
  }
  return decoded;
}

// All rows of a message run at once, so no two may share an entry.
bool SampleDecoder::fits_device(const TensorHeader& header, SamplePayload payload) {
  bool cached = false;
  samples_.clear();
  for (const Row& row : header.rows.rows) {
    const RowHeader part = payload.next().header;
    if (part.bits == kWholeBits) return false;
    cached = cached || part.base != RowBase::none;
    samples_.push_back(row.sample);
  }
  if (!cached) return true;
  std::ranges::sort(samples_);
  return cache_->stays_in_memory(header.rows.size()) &&
         std::ranges::adjacent_find(samples_) == samples_.end();
}

Decoded SampleDecoder::decode_on_device(const TensorHeader& header,
                                        std::span<const std::byte> payload, SamplePayload& rows) {
  const at::TensorOptions options = at::TensorOptions().dtype(result_).device(device_->device());
  const std::array<std::int64_t, 3> shape{header.rows.size(), header.rows.padded_length,
                                          header.width};
  // Padding must be zero; without padding the kernels write every value.
  const bool padded = header.rows.tokens() != shape[0] * shape[1];
  Decoded decoded{padded ? at::zeros(shape, options) : at::empty(shape, options), {}};
  const std::span<std::byte> pinned = device_->payload(payload.size());
  std::memcpy(pinned.data(), payload.data(), payload.size());
  auto* to = static_cast<std::byte*>(decoded.values.mutable_data_ptr());
  device_rows_.clear();
  for (std::size_t place = 0; place < header.rows.rows.size(); ++place) {
    const Row& row = header.rows.rows[place];
    const SamplePayload::Part part = rows.next();
    const auto base = base_of(part, row, header.width);
    if (base) {
      const std::ptrdiff_t at = part.data.data() - payload.data();
      device_rows_.push_back({to,
                              pinned.data() + at,
                              base->empty() ? nullptr : base->data(),
                              row.length(),
                              {part.header.bits, rows.group(), part.header.rotate},
                              part.header.base == RowBase::fresh,
                              {}});
    } else {
      decoded.missing.push_back(static_cast<std::int64_t>(place));
    }
    to += header.rows.padded_length * header.width * kernels::bytes_of(element_);
  }
  const kernels::RowShape common{element_, header.width};
  device_->decode(common, device_rows_);
  return decoded;
}

// Marks the entries of all rows as used in this step before any is added. So none of them is
// evicted while the message is decoded, even one that will be replaced. The sender does the same,
// which keeps both caches equal.
void SampleDecoder::pin(const TensorHeader& header, SamplePayload payload) {
  if (cache_ == nullptr) return;
  for (const Row& row : header.rows.rows) {
    if (payload.next().header.base != RowBase::none) cache_->find(row.sample);
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

std::optional<std::span<std::byte>> SampleDecoder::base_of(const SamplePayload::Part& part,
                                                           const Row& row, std::int64_t width) {
  if (part.header.base == RowBase::none) return std::span<std::byte>{};
  if (part.header.base == RowBase::fresh) {
    ++traffic_.cache_misses;
    return room_for(row.sample, row.length());
  }
  ++traffic_.hits;
  const std::span<std::byte> entry = cache_->find(row.sample);
  const auto size = static_cast<std::size_t>(kernels::entry_bytes(row.length(), width));
  // The size may differ when another end wrote the entry for a row of another length.
  if (entry.size() != size || entry_hash(entry) != part.header.hash) return std::nullopt;
  return entry;
}

void SampleDecoder::decode_row(const SamplePayload::Part& part, int group,
                               std::span<std::byte> entry, const kernels::MutableValues& out) {
  const kernels::GroupFormat format{part.header.bits, group, part.header.rotate};
  const bool wide = part.header.bits == kWholeBits;
  if (wide) wide_.copy(part.data);
  if (part.header.base == RowBase::none) {
    if (wide) {
      wide_.read_into(out);
    } else {
      kernels::dequantize(part.data.data(), format, out);
    }
    return;
  }
  if (wide) {
    kernels::store_entry(wide_.values(out.tokens, out.width), entry.data());
    kernels::load_entry(entry.data(), out);
  } else {
    kernels::apply_change(part.data.data(), format, part.header.base == RowBase::fresh,
                          entry.data(), out);
  }
}

void SampleDecoder::complete(const TensorHeader& header, std::span<const std::byte> payload,
                             std::span<const std::int64_t> places, const at::Tensor& values) {
  if (cache_ == nullptr) return Decoder::complete(header, payload, places, values);
  if (places.size() != header.rows.rows.size() || values.scalar_type() != result_ ||
      values.dim() != 3 || values.size(2) != header.width ||
      values.size(1) != header.rows.padded_length) {
    throw CodecError(
        fmt::format("a peer sends {} rows of width {} again where {} of width {} were asked for",
                    header.rows.size(), header.width, places.size(), values.size(-1)));
  }
  // Later accesses may have evicted or changed the entries that the sender refers to.
  if (cache_->step() != header.step) {
    throw CodecError(fmt::format("a peer sends rows of step {} again, which is not this step's",
                                 number(header.step)));
  }
  std::span<const std::byte> rest = read_whole(header, payload);
  if (device_) device_->wait();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t tokens = header.rows.rows[i].length();
    if (tokens == 0 || places[i] < 0 || places[i] >= values.size(0)) {
      throw CodecError(fmt::format("a peer sends {} tokens again for row {} of {}", tokens,
                                   places[i], values.size(0)));
    }
    const std::span<std::byte> entry = room_for(header.rows.rows[i].sample, tokens);
    std::memcpy(entry.data(), rest.data(), entry.size());
    rest = rest.subspan(entry.size());
    const std::array<std::int64_t, 2> shape{tokens, header.width};
    const at::Tensor row = pool_.take(shape);
    kernels::load_entry(entry.data(), {row.mutable_data_ptr(), element_, tokens, header.width});
    values[places[i]].narrow(0, 0, tokens).copy_(row);
  }
  traffic_.resends += static_cast<std::uint64_t>(header.rows.size());
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
