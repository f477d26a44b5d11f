#include "framework/codec/sample_encoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "framework/bytes.h"
#include "framework/codec/message.h"
#include "kernels/kernel_tensors.h"
#include "kernels/random.h"
#include "kernels/row_quantization.h"

namespace strait::codec {
namespace {

// A gradient whose change is at most half its size can be sent with fewer bits, and its error still
// hides in the gradient's noise. Every kComparedTokens-th token is compared.
constexpr double kNear = 0.5;
constexpr std::int64_t kComparedTokens = 8;

// Extends the frame and returns the new part.
std::byte* grown(net::Frame& frame, std::size_t bytes) {
  const std::size_t at = frame.size();
  frame.resize(at + bytes);
  return frame.data() + at;
}

}  // namespace

SampleEncoder::SampleEncoder(SampleEncoderOptions options, std::unique_ptr<ActivationCache> cache)
    : options_(std::move(options)), cache_(std::move(cache)) {
  if (options_.choose && options_.direction == Direction::backward) noise_.emplace();
  if (!options_.device.is_cpu()) device_.emplace(options_.device);
}

// The noise of gradients, and their distance to the last ones, are computed on the CPU.
bool SampleEncoder::takes_device() const {
  return device_ && !noise_ && (cache_ == nullptr || options_.direction == Direction::forward);
}

void SampleEncoder::begin_step(store::Step step) {
  if (step_ == step) return;
  step_ = step;
  if (cache_ != nullptr) cache_->begin_step(step);
  if (noise_) noise_->begin_step();
  if (options_.choose) options_.choice = options_.choose(step, traffic());
}

RowHeader SampleEncoder::cache_miss_header() const {
  return row_header(RowBase::fresh, options_.choice.first_bits, options_.direction);
}

RowHeader SampleEncoder::plan(const Row& row, const kernels::Values& values) {
  const Choice& choice = options_.choice;
  if (choice.encoding == Choice::Encoding::raw) return {RowBase::none, kWholeBits, false, 0};
  RowHeader plan = row_header(RowBase::none, choice.bits, options_.direction);
  if (choice.encoding == Choice::Encoding::fixed || cache_ == nullptr || row.length() == 0)
    return plan;
  const auto size =
      static_cast<std::size_t>(kernels::entry_bytes(row.length(), cache_->options().width));
  const std::span<const std::byte> entry = cache_->find(row.sample);
  if (entry.size() != size) return cache_miss_header();
  const bool gradient = options_.direction == Direction::backward;
  if (gradient && !is_near(values, entry)) return cache_miss_header();
  plan.base = RowBase::entry;
  return plan;
}

// A sample of the tokens is enough: only the number of bytes depends on the result.
bool SampleEncoder::is_near(const kernels::Values& values, std::span<const std::byte> entry) {
  const auto width = static_cast<std::size_t>(values.width);
  const auto token_bytes = static_cast<std::size_t>(kernels::entry_bytes(1, values.width));
  const std::int64_t value_bytes = values.width * kernels::bytes_of(values.element);
  compared_.resize(2 * width);
  double change = 0;
  double value = 0;
  for (std::int64_t token = 0; token < values.tokens; token += kComparedTokens) {
    const auto* from = static_cast<const std::byte*>(values.data) + token * value_bytes;
    wide_.round({from, values.element, 1, values.width});
    wide_.read_into({compared_.data(), kernels::Element::float32, 1, values.width});
    kernels::load_entry(entry.data() + static_cast<std::size_t>(token) * token_bytes,
                        {compared_.data() + width, kernels::Element::float32, 1, values.width});
    for (std::size_t i = 0; i < width; ++i) {
      const float difference = compared_[i] - compared_[width + i];
      change += double{difference} * difference;
      value += double{compared_[i]} * compared_[i];
    }
  }
  return change < kNear * kNear * value;
}

void SampleEncoder::encode(const TensorHeader& header, const at::Tensor& tensor,
                           net::Frame& frame) {
  if (header.evaluation || tensor.dim() != 3 || tensor.size(0) != header.rows.size() ||
      tensor.size(1) != header.rows.padded_length || tensor.size(2) != header.width ||
      (cache_ != nullptr && cache_->options().width != header.width)) {
    throw std::logic_error(
        fmt::format("{} tensor of {} dimensions for {} rows of {} tokens of width {}",
                    header.evaluation ? "evaluation's" : "a", tensor.dim(), header.rows.size(),
                    header.rows.padded_length, header.width));
  }
  begin_step(header.step);
  const std::size_t begin = frame.size();
  if (!tensor.is_cpu() && takes_device() && fits_device(header)) {
    encode_on_device(header, tensor.detach().contiguous(), frame);
  } else {
    encode_on_host(header, tensor, frame);
  }
  ++traffic_.messages;
  traffic_.raw_bytes += header.raw_bytes();
  traffic_.payload_bytes += frame.size() - begin;
}

void SampleEncoder::encode_on_host(const TensorHeader& header, const at::Tensor& tensor,
                                   net::Frame& frame) {
  at::Tensor source = tensor;
  if (!tensor.is_cpu() || !tensor.is_contiguous()) {
    source = pool_.take(tensor.sizes());
    source.copy_(tensor.detach());
  }
  const kernels::Element element = kernels::element_of(source.scalar_type());
  const auto* const values = static_cast<const std::byte*>(source.const_data_ptr());
  const std::int64_t row_bytes =
      header.rows.padded_length * header.width * kernels::bytes_of(element);
  // plan() marks entries as used, so that encoding one row does not evict another's base.
  plans_.clear();
  std::size_t size = kPayloadHeaderBytes;
  for (const Row& row : header.rows.rows) {
    const std::byte* const from = values + std::ssize(plans_) * row_bytes;
    plans_.push_back(plan(row, {from, element, row.length(), header.width}));
    size += row_header_bytes(plans_.back().base) +
            data_bytes(plans_.back(), options_.group, row.length(), header.width);
  }
  frame.reserve(frame.size() + size);
  write_payload_header({cache_ != nullptr, options_.group}, grown(frame, kPayloadHeaderBytes));
  const auto* from = values;
  for (std::size_t place = 0; place < plans_.size(); ++place, from += row_bytes) {
    const std::int64_t length = header.rows.rows[place].length();
    const std::size_t data =
        encode_row(header, place, {from, element, length, header.width}, frame);
    if (noise_ && length > 0) {
      measure_noise(plans_[place], source[static_cast<std::int64_t>(place)].narrow(0, 0, length),
                    frame.data() + data);
    }
  }
}

// All rows of a message run at once, so none may depend on an entry that another row writes.
bool SampleEncoder::fits_device(const TensorHeader& header) {
  const Choice& choice = options_.choice;
  if (choice.encoding == Choice::Encoding::raw) return false;
  if (choice.encoding == Choice::Encoding::fixed || cache_ == nullptr) return true;
  samples_.clear();
  for (const Row& row : header.rows.rows) samples_.push_back(row.sample);
  std::ranges::sort(samples_);
  return choice.first_bits != kWholeBits && cache_->stays_in_memory(header.rows.size()) &&
         std::ranges::adjacent_find(samples_) == samples_.end();
}

void SampleEncoder::encode_on_device(const TensorHeader& header, const at::Tensor& tensor,
                                     net::Frame& frame) {
  const kernels::RowShape shape{kernels::element_of(tensor.scalar_type()), header.width};
  auto* from = static_cast<std::byte*>(tensor.mutable_data_ptr());
  plans_.clear();
  for (const Row& row : header.rows.rows) plans_.push_back(plan(row, {}));
  device_rows_.clear();
  std::size_t size = kPayloadHeaderBytes;
  for (std::size_t place = 0; place < plans_.size(); ++place) {
    RowHeader& row = plans_[place];
    const std::int64_t tokens = header.rows.rows[place].length();
    const std::span<std::byte> entry = resolve_base(row, header.rows.rows[place].sample, tokens);
    device_rows_.push_back({from,
                            nullptr,
                            entry.empty() ? nullptr : entry.data(),
                            tokens,
                            {row.bits, options_.group, row.rotate},
                            row.base == RowBase::fresh,
                            draw_for(header, place, row.base)});
    from += header.rows.padded_length * header.width * kernels::bytes_of(shape.element);
    size += row_header_bytes(row.base) + data_bytes(row, options_.group, tokens, header.width);
  }
  const std::span<std::byte> payload = device_->payload(size);
  std::byte* to = write_payload_header({cache_ != nullptr, options_.group}, payload.data());
  for (std::size_t place = 0; place < plans_.size(); ++place) {
    kernels::GpuRow& row = device_rows_[place];
    row.payload = write_row_header(plans_[place], to);
    to = row.payload + data_bytes(plans_[place], options_.group, row.tokens, header.width);
  }
  device_->encode(shape, device_rows_);
  device_->wait();
  append_bytes(frame, payload);
  for (std::size_t place = 0; place < plans_.size(); ++place) {
    const store::SampleId sample = header.rows.rows[place].sample;
    if (plans_[place].base != RowBase::none) {
      cache_->set_checksum(sample, entry_hash(cache_->find(sample)));
    }
    count(plans_[place], device_->sums(place));
  }
}

std::size_t SampleEncoder::encode_row(const TensorHeader& header, std::size_t place,
                                      const kernels::Values& values, net::Frame& frame) {
  RowHeader row = plans_[place];
  const store::SampleId sample = header.rows.rows[place].sample;
  kernels::SquareSums sums;
  std::span<std::byte> entry = resolve_base(row, sample, values.tokens);
  if (row.bits == kWholeBits) entry = resolve_wide(row, sample, values, sums);
  write_row_header(row, grown(frame, row_header_bytes(row.base)));
  std::byte* to = grown(frame, data_bytes(row, options_.group, values.tokens, values.width));
  const kernels::GroupFormat format{row.bits, options_.group, row.rotate};
  if (row.bits == kWholeBits) {
    wide_.write_to(to);
  } else if (row.base == RowBase::none) {
    kernels::quantize(values, format, draw_for(header, place, row.base), to, &sums);
  } else {
    kernels::quantize_change(values, format, draw_for(header, place, row.base),
                             row.base == RowBase::fresh, entry.data(), to, &sums);
  }
  if (row.base != RowBase::none) cache_->set_checksum(sample, entry_hash(entry));
  count(row, sums);
  return static_cast<std::size_t>(to - frame.data());
}

void SampleEncoder::measure_noise(const RowHeader& row, const at::Tensor& values,
                                  const std::byte* sent) {
  noise_->add(values);
  // A bfloat16 row is the reference for errors, and a cached row decodes to its entry.
  if (row.bits == kWholeBits || row.base != RowBase::none || !noise_->wants_comparison()) return;
  const at::Tensor decoded = at::empty(values.sizes(), at::kFloat);
  kernels::dequantize(
      sent, {row.bits, options_.group, row.rotate},
      {decoded.mutable_data_ptr(), kernels::Element::float32, values.size(0), values.size(1)});
  noise_->compare(values, decoded);
}

// Sets the row's base as planned, unless the entry is corrupted or the cache has no room for it.
std::span<std::byte> SampleEncoder::resolve_base(RowHeader& row, store::SampleId sample,
                                                 std::int64_t tokens) {
  std::span<std::byte> entry;
  if (row.base == RowBase::entry) {
    entry = cache_->find(sample);
    row.hash = entry_hash(entry);
    if (row.hash == cache_->checksum(sample)) return entry;
    ++traffic_.resends;
    row = cache_miss_header();
  }
  // Whether a bfloat16 row may be cached is known only after rounding; see resolve_wide().
  if (row.base != RowBase::fresh || row.bits == kWholeBits) return {};
  entry = cache_->keep(sample, tokens);
  if (entry.empty()) row.base = RowBase::none;
  return entry;
}

std::span<std::byte> SampleEncoder::resolve_wide(RowHeader& row, store::SampleId sample,
                                                 const kernels::Values& values,
                                                 kernels::SquareSums& sums) {
  wide_.round(values);
  const bool finite = wide_.is_cacheable();
  sums.refused_groups = finite ? 0 : 1;
  if (row.base == RowBase::none) return {};
  std::span<std::byte> entry;
  if (finite) entry = cache_->keep(sample, values.tokens);
  if (entry.empty()) {
    row.base = RowBase::none;
    return {};
  }
  // Stored from the rounded values: the receiver has only these, and both entries must be equal.
  kernels::store_entry(wide_.values(values.tokens, values.width), entry.data());
  return entry;
}

// Only an activation's change carries its rounding error into the next message.
kernels::Draw SampleEncoder::draw_for(const TensorHeader& header, std::size_t place,
                                      RowBase base) const {
  if (base == RowBase::entry && options_.direction == Direction::forward) return {};
  return {kernels::Rounding::unbiased,
          kernels::mix_key({options_.key, static_cast<std::uint64_t>(number(header.step)),
                            static_cast<std::uint64_t>(header.micro_batch),
                            static_cast<std::uint64_t>(header.kind), place})};
}

void SampleEncoder::count(const RowHeader& row, const kernels::SquareSums& sums) {
  ++traffic_.rows;
  traffic_.value_squares += sums.value;
  traffic_.error_squares += sums.error;
  if (sums.refused_groups != 0) ++traffic_.refused_rows;
  if (row.base == RowBase::fresh) ++traffic_.cache_misses;
  if (row.base != RowBase::entry) return;
  ++traffic_.hits;
  traffic_.change_squares += sums.change;
  traffic_.changed_value_squares += sums.value;
}

void SampleEncoder::encode_whole(const TensorHeader& header, net::Frame& frame) {
  if (cache_ == nullptr) return Encoder::encode_whole(header, frame);
  if (step_ != header.step) {
    throw CodecError(fmt::format("a peer asks for rows of step {} again in step {}",
                                 number(header.step), step_ ? number(*step_) : -1));
  }
  const ActivationCacheOptions& options = cache_->options();
  std::size_t size = kWholeHeaderBytes;
  for (const Row& row : header.rows.rows) {
    const auto needed = static_cast<std::size_t>(kernels::entry_bytes(row.length(), options.width));
    const std::span<const std::byte> entry = cache_->find(row.sample);
    const bool held = header.width == options.width && needed != 0 && entry.size() == needed &&
                      entry_hash(entry) == cache_->checksum(row.sample);
    if (!held) {
      throw CodecError(fmt::format(
          "a peer asks for {} tokens of width {} of sample {} again, which this end does not hold",
          row.length(), header.width, number(row.sample)));
    }
    size += needed;
  }
  std::byte* to = write_whole_header(grown(frame, size));
  for (const Row& row : header.rows.rows) {
    const std::span<const std::byte> entry = cache_->find(row.sample);
    std::memcpy(to, entry.data(), entry.size());
    to += entry.size();
  }
  traffic_.resends += static_cast<std::uint64_t>(header.rows.size());
  traffic_.payload_bytes += size;
}

Traffic SampleEncoder::traffic() const {
  Traffic traffic = traffic_;
  if (cache_ != nullptr) {
    traffic.evictions = cache_->evictions();
    traffic.cache_bytes = cache_->bytes();
  }
  if (noise_) noise_->add_to(traffic);
  return traffic;
}

}  // namespace strait::codec
