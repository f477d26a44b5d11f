#include "framework/codec/sample_encoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "framework/codec/codec_error.h"
#include "framework/codec/element_type.h"
#include "kernels/apply_change.h"
#include "kernels/quantize.h"
#include "kernels/quantize_change.h"
#include "kernels/random_key.h"

namespace strait::codec {

SampleEncoder::SampleEncoder(const SampleEncoderOptions& options,
                             std::unique_ptr<ActivationCache> cache)
    : options_(options), cache_(std::move(cache)) {}

Memory SampleEncoder::memory() const {
  return cache_ == nullptr ? Memory{} : Memory{cache_->options().kind};
}

void SampleEncoder::begin_step(store::Step step) {
  if (step_ == step) return;
  step_ = step;
  if (cache_ != nullptr) cache_->begin_step(step);
  if (options_.choose) options_.choice = options_.choose(step, traffic());
}

RowHead SampleEncoder::plan(const Row& row) {
  const Choice& choice = options_.choice;
  RowHead plan{RowBase::none, choice.bits, options_.rotate, 0};
  if (choice.way == Choice::Way::raw) plan.bits = kWholeBits;
  if (choice.way == Choice::Way::delta && cache_ != nullptr && row.length() != 0) {
    const auto size = static_cast<std::size_t>(
        kernels::entry_bytes(cache_->options().kind, row.length(), cache_->options().width));
    plan.base = cache_->find(row.sample).size() == size ? RowBase::entry : RowBase::fresh;
    if (plan.base == RowBase::fresh) plan.bits = choice.first_bits;
  }
  if (plan.bits == kWholeBits) plan.rotate = false;
  return plan;
}

void SampleEncoder::encode(const TensorHead& head, const at::Tensor& tensor, net::Frame& frame) {
  if (head.evaluation || tensor.dim() != 3 || tensor.size(0) != head.rows.size() ||
      tensor.size(1) != head.rows.padded_length || tensor.size(2) != head.width ||
      (cache_ != nullptr && cache_->options().width != head.width)) {
    throw std::logic_error(
        fmt::format("{} tensor of {} dimensions for {} rows of {} tokens of width {}",
                    head.evaluation ? "evaluation's" : "a", tensor.dim(), head.rows.size(),
                    head.rows.padded_length, head.width));
  }
  begin_step(head.step);
  at::Tensor source = tensor;
  if (!tensor.is_cpu() || !tensor.is_contiguous()) {
    source = pool_.take(tensor.sizes());
    source.copy_(tensor.detach());
  }
  plans_.clear();
  std::size_t size = kPayloadHeadBytes;
  for (const Row& row : head.rows.rows) {
    plans_.push_back(plan(row));
    size += head_bytes(plans_.back().base) +
            data_bytes(plans_.back(), options_.group, row.length(), head.width);
  }
  const std::size_t begin = frame.size();
  frame.resize(begin + size);
  std::byte* to = write_payload_head({memory(), options_.group}, frame.data() + begin);
  const kernels::Element element = element_of(source.scalar_type());
  const auto* from = static_cast<const std::byte*>(source.const_data_ptr());
  const std::int64_t row_bytes = head.rows.padded_length * head.width * kernels::bytes_of(element);
  for (std::size_t place = 0; place < plans_.size(); ++place, from += row_bytes) {
    to = encode_row(head, place, {from, element, head.rows.rows[place].length(), head.width}, to);
  }
  if (to != frame.data() + frame.size()) {
    throw std::logic_error(
        fmt::format("a payload of {} bytes was planned with {}", to - frame.data(), frame.size()));
  }
  traffic_.raw_bytes += static_cast<std::uint64_t>(head.rows.tokens() * head.width) * sizeof(float);
  traffic_.payload_bytes += size;
}

std::byte* SampleEncoder::encode_row(const TensorHead& head, std::size_t place,
                                     const kernels::Values& values, std::byte* to) {
  RowHead row = plans_[place];
  const store::SampleId sample = head.rows.rows[place].sample;
  if (row.bits == kWholeBits) return encode_wide(row, sample, values, to);
  std::span<std::byte> entry;
  if (row.base == RowBase::entry) {
    entry = cache_->find(sample);
    row.hash = entry_hash(entry);
  } else if (row.base == RowBase::fresh) {
    entry = cache_->keep(sample, values.tokens);
    if (entry.empty()) row.base = RowBase::none;
  }
  kernels::Draw draw{options_.rounding, 0};
  if (draw.rounding == kernels::Rounding::stochastic) {
    draw.key = kernels::mix_key({options_.key, static_cast<std::uint64_t>(number(head.step)),
                                 static_cast<std::uint64_t>(head.micro_batch),
                                 static_cast<std::uint64_t>(head.kind), place});
  }
  to = write_row_head(row, to);
  const kernels::GroupFormat format{row.bits, options_.group, row.rotate};
  kernels::SquareSums sums;
  if (row.base == RowBase::none) {
    kernels::quantize({}, values, format, draw, to, &sums);
  } else {
    kernels::quantize_change({}, values, format, draw, cache_->options().kind,
                             row.base == RowBase::fresh, entry.data(), to, &sums);
  }
  count(row, sums);
  return to + data_bytes(row, options_.group, values.tokens, values.width);
}

std::byte* SampleEncoder::encode_wide(RowHead row, store::SampleId sample,
                                      const kernels::Values& values, std::byte* to) {
  const std::span<const std::byte> bytes = wide_.round(values);
  kernels::SquareSums sums;
  sums.refused_groups = wide_.fit_to_remember() ? 0 : 1;
  if (row.base == RowBase::fresh) {
    std::span<std::byte> entry;
    if (sums.refused_groups == 0) entry = cache_->keep(sample, values.tokens);
    if (entry.empty()) {
      row.base = RowBase::none;
    } else {
      // From the rounded values, which are all that the other end gets.
      kernels::store_entry({}, wide_.values(values.tokens, values.width), cache_->options().kind,
                           entry.data());
    }
  }
  to = write_row_head(row, to);
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  count(row, sums);
  return to + bytes.size();
}

void SampleEncoder::count(const RowHead& row, const kernels::SquareSums& sums) {
  ++traffic_.rows;
  traffic_.value_squares += sums.value;
  traffic_.error_squares += sums.error;
  if (sums.refused_groups != 0) ++traffic_.refused_rows;
  if (row.base == RowBase::fresh) ++traffic_.first_visits;
  if (row.base != RowBase::entry) return;
  ++traffic_.hits;
  traffic_.change_squares += sums.change;
  traffic_.changed_value_squares += sums.value;
}

void SampleEncoder::encode_whole(const TensorHead& head, net::Frame& frame) {
  if (cache_ == nullptr) return Encoder::encode_whole(head, frame);
  if (step_ != head.step) {
    throw CodecError(fmt::format("a peer asks for rows of step {} again in step {}",
                                 number(head.step), step_ ? number(*step_) : -1));
  }
  const ActivationCacheOptions& options = cache_->options();
  std::size_t size = kWholeHeadBytes;
  for (const Row& row : head.rows.rows) {
    const auto needed =
        static_cast<std::size_t>(kernels::entry_bytes(options.kind, row.length(), options.width));
    if (head.width != options.width || needed == 0 || cache_->find(row.sample).size() != needed) {
      throw CodecError(
          fmt::format("a peer asks for {} tokens of width {} of sample {} again, which "
                      "this end does not hold",
                      row.length(), head.width, number(row.sample)));
    }
    size += needed;
  }
  const std::size_t begin = frame.size();
  frame.resize(begin + size);
  std::byte* to = write_whole_head(options.kind, frame.data() + begin);
  for (const Row& row : head.rows.rows) {
    const std::span<const std::byte> entry = cache_->find(row.sample);
    std::memcpy(to, entry.data(), entry.size());
    to += entry.size();
  }
  traffic_.resends += static_cast<std::uint64_t>(head.rows.size());
  traffic_.payload_bytes += size;
}

Traffic SampleEncoder::traffic() const {
  Traffic traffic = traffic_;
  if (cache_ != nullptr) {
    traffic.evictions = cache_->evictions();
    traffic.cache_bytes = cache_->bytes();
  }
  return traffic;
}

}  // namespace strait::codec
