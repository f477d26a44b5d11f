#include "framework/codec/transform_decoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "framework/codec/transform_encoder.h"

namespace strait::codec {
namespace {

// Entries as they are in a cache or a message, [tokens, width].
at::Tensor whole_numbers(std::span<const std::byte> bytes, std::int64_t width) {
  at::Tensor whole = at::empty({std::ssize(bytes) / 2 / width, width}, at::kShort);
  if (!bytes.empty()) std::memcpy(whole.mutable_data_ptr(), bytes.data(), bytes.size());
  return whole;
}

}  // namespace

TransformDecoder::TransformDecoder(at::ScalarType result, std::unique_ptr<ActivationCache> cache)
    : result_(result), cache_(std::move(cache)), groups_(result, nullptr) {
  TransformState::load(*cache_).save_to(*cache_);
}

void TransformDecoder::begin_step(const TensorHeader& header) {
  if (step_ == header.step) return;
  if (!step_) state_ = TransformState::load(*cache_);
  step_ = header.step;
  cache_->begin_step(header.step);
}

at::Tensor TransformDecoder::read_gradients(const TransformMessage& message) const {
  const std::int64_t width = state_.basis->width();
  at::Tensor values = at::empty({std::ssize(message.levels) / width, width});
  auto* to = values.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < message.levels.size(); ++i) {
    to[i] =
        (static_cast<float>(message.levels[i]) - dither_of(message.dither, i)) * message.level_size;
  }
  return values;
}

// Adds the row's levels to its entry, or to zeros; false: the entry is missing.
bool TransformDecoder::add_levels(const Row& row, const TransformRow& sent,
                                  std::span<const std::int32_t> levels, std::int64_t units,
                                  std::vector<std::int16_t>& entry) {
  entry.assign(levels.size(), 0);
  if (sent.base == RowBase::entry) {
    const std::span<const std::byte> held = cache_->find(row.sample);
    if (held.size() != std::as_bytes(std::span(entry)).size() ||
        entry_mark(held, state_.generation) != sent.mark) {
      return false;
    }
    std::memcpy(entry.data(), held.data(), held.size());
  }
  for (std::size_t i = 0; i < entry.size(); ++i) {
    // In 64 bits: a hostile level must not overflow before it is judged.
    const std::int64_t whole = entry[i] + units * levels[i];
    if (whole < -kMostEntry || whole > kMostEntry) {
      throw CodecError(
          fmt::format("sample {} of a transformed payload has an entry of {}; the most is {}",
                      number(row.sample), whole, kMostEntry));
    }
    entry[i] = static_cast<std::int16_t>(whole);
  }
  return true;
}

void TransformDecoder::keep(const Row& row, std::span<const std::byte> entry) {
  const std::span<std::byte> kept = cache_->keep_always(row.sample, row.length());
  if (kept.empty()) {
    throw CodecError(fmt::format("a peer caches more rows of one step than the {} that fit here",
                                 cache_->entries()));
  }
  std::memcpy(kept.data(), entry.data(), kept.size());
  cache_->set_checksum(row.sample, entry_mark(kept, state_.generation));
}

at::Tensor TransformDecoder::read_rows(const TensorHeader& header, const TransformMessage& message,
                                       std::vector<std::int64_t>& missing) {
  const std::span levels(message.levels);
  at::Tensor coordinates = at::zeros({header.rows.tokens(), header.width});
  std::vector<std::int16_t> entry;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < message.rows.size(); ++i) {
    const Row& row = header.rows.rows[i];
    const auto first = static_cast<std::size_t>(at * header.width);
    const auto count = static_cast<std::size_t>(row.length() * header.width);
    at::Tensor to = coordinates.narrow(0, at, row.length());
    at += row.length();
    const TransformRow& sent = message.rows[i];
    if (!add_levels(row, sent, levels.subspan(first, count), message.level_units, entry)) {
      missing.push_back(static_cast<std::int64_t>(i));
      continue;
    }
    const auto bytes = std::as_bytes(std::span(entry));
    to.copy_(whole_numbers(bytes, header.width));
    if (sent.base == RowBase::none) continue;
    keep(row, bytes);
    ++(sent.base == RowBase::fresh ? traffic_.cache_misses : traffic_.hits);
  }
  return coordinates.mul_(state_.basis->part().unit);
}

Decoded TransformDecoder::decode(const TensorHeader& header, std::span<const std::byte> payload) {
  begin_step(header);
  // Look-ups decide which entries are evicted, so both ends must make the same ones.
  // The sender looks all of them up, too, whatever follows.
  if (header.kind != Kind::backward) {
    for (const Row& row : header.rows.rows) {
      if (row.length() > 0) cache_->find(row.sample);
    }
  }
  // The sender falls back to groups where a basis does not pay.
  if (!payload.empty() && payload.front() == std::byte{kSampleFormat}) {
    return groups_.decode(header, payload);
  }
  TransformMessage message =
      read_transform(header, payload, state_.generation, state_.basis->part());
  if (message.basis) {
    state_.set_basis(message.generation, *std::move(message.basis));
    state_.save_to(*cache_);
  }
  Decoded decoded;
  const at::Tensor values = state_.basis->expand(header.kind == Kind::backward
                                                     ? read_gradients(message)
                                                     : read_rows(header, message, decoded.missing));
  decoded.values =
      at::zeros({header.rows.size(), header.rows.padded_length, header.width}, result_);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < header.rows.size(); ++i) {
    const std::int64_t tokens = header.rows.rows[static_cast<std::size_t>(i)].length();
    decoded.values[i].narrow(0, 0, tokens).copy_(values.narrow(0, at, tokens));
    at += tokens;
  }
  ++traffic_.messages;
  traffic_.rows += static_cast<std::uint64_t>(header.rows.size());
  traffic_.raw_bytes += header.raw_bytes();
  traffic_.payload_bytes += payload.size();
  return decoded;
}

void TransformDecoder::complete(const TensorHeader& header, std::span<const std::byte> payload,
                                std::span<const std::int64_t> places, const at::Tensor& values) {
  if (step_ != header.step || places.size() != header.rows.rows.size()) {
    throw CodecError(fmt::format("a peer sends {} rows of step {} again where {} were asked for",
                                 header.rows.size(), number(header.step), places.size()));
  }
  const auto expected =
      static_cast<std::size_t>(kernels::entry_bytes(header.rows.tokens(), header.width));
  if (payload.size() != expected) {
    throw CodecError(fmt::format("a payload of whole transformed rows has {} bytes, not {}",
                                 payload.size(), expected));
  }
  std::span<const std::byte> rest = payload;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Row& row = header.rows.rows[i];
    if (row.length() == 0 || places[i] < 0 || places[i] >= values.size(0)) {
      throw CodecError(fmt::format("a peer sends {} tokens again for row {} of {}", row.length(),
                                   places[i], values.size(0)));
    }
    const auto entry =
        rest.first(static_cast<std::size_t>(kernels::entry_bytes(row.length(), header.width)));
    rest = rest.subspan(entry.size());
    keep(row, entry);
    const at::Tensor coordinates = whole_numbers(entry, header.width) * state_.basis->part().unit;
    values[places[i]].narrow(0, 0, row.length()).copy_(state_.basis->expand(coordinates));
  }
  traffic_.resends += static_cast<std::uint64_t>(header.rows.size());
  traffic_.payload_bytes += payload.size();
}

Traffic TransformDecoder::traffic() const {
  return total_traffic(traffic_, groups_.traffic(), *cache_);
}

}  // namespace strait::codec
