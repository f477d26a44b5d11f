#include "framework/codec/transform_encoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <numeric>

#include "framework/bytes.h"
#include "framework/coding/symbol_model.h"
#include "kernels/random.h"

namespace strait::codec {
namespace {

constexpr std::int64_t kSearched = 16384;  // values from which a step is found
constexpr std::uint8_t kLastGeneration = 255;

double squared(double value) { return value * value; }

double energy_of(const at::Tensor& values) { return values.square().sum().item<double>(); }

SampleEncoderOptions in_groups(const TransformEncoderOptions& options) {
  SampleEncoderOptions groups;
  const bool forward = options.direction == Direction::forward;
  const int bits = forward ? options.first_bits : options.bits;
  groups.choice = {bits == kWholeBits ? Choice::Encoding::raw : Choice::Encoding::fixed, bits,
                   bits};
  groups.group = options.group;
  groups.key = options.key;
  groups.direction = options.direction;
  return groups;
}

// The values of all tokens, without padding.
at::Tensor tokens_of(const TensorHeader& header, const at::Tensor& tensor) {
  std::vector<at::Tensor> rows;
  rows.reserve(header.rows.rows.size());
  for (const Row& row : header.rows.rows) {
    rows.push_back(tensor[std::ssize(rows)].narrow(0, 0, row.length()));
  }
  return at::cat(rows).detach().to(at::kCPU, at::kFloat).contiguous();
}

// The largest step whose rounding errors have at most this energy together.
double step_for(const at::Tensor& changes, double wanted) {
  constexpr int kHalvings = 14;
  const at::Tensor flat = changes.reshape({-1});
  // All columns are met.
  std::int64_t stride = flat.numel() / kSearched + 1;
  while (std::gcd(stride, changes.size(1)) != 1) ++stride;
  const at::Tensor some = flat.slice(0, 0, flat.numel(), stride).contiguous();
  const double share = static_cast<double>(some.numel()) / static_cast<double>(flat.numel());
  const auto error_of = [&](double step) { return energy_of(some - (some / step).round() * step); };
  double most = 4 * some.abs().max().item<double>();
  if (!(most > 0) || error_of(most) <= share * wanted) return most;
  double least = most * 1e-6;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = std::sqrt(least * most);
    (error_of(middle) > share * wanted ? most : least) = middle;
  }
  return least;
}

std::uint8_t loudness_of(double sum_of_sizes, std::int64_t tokens, const BasisPart& basis) {
  double expected = 0;
  for (const std::uint8_t spread : basis.spread) expected += std::exp2((spread - 255) / 4.0);
  if (!(sum_of_sizes > 0)) return 0;
  const double largest = sum_of_sizes / static_cast<double>(tokens) / expected;
  const double quarters = 4 * std::log2(coding::LevelModels::kOne * largest);
  return static_cast<std::uint8_t>(std::clamp(std::round(quarters), 0.0, 100.0));
}

// Of a message without its levels and a new basis.
std::size_t most_head_bytes(const TensorHeader& header) {
  return 16 + 9 * static_cast<std::size_t>(header.rows.size());
}

at::Tensor dither_for(std::uint64_t seed, const at::Tensor& like) {
  at::Tensor dither = at::empty_like(like);
  auto* to = dither.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < like.numel(); ++i) {
    to[i] = dither_of(seed, static_cast<std::uint64_t>(i));
  }
  return dither;
}

}  // namespace

TransformEncoder::TransformEncoder(const TransformEncoderOptions& options,
                                   std::unique_ptr<ActivationCache> cache)
    : options_(options), cache_(std::move(cache)), groups_(in_groups(options), nullptr) {
  TransformState::load(*cache_).save_to(*cache_);
}

void TransformEncoder::begin_step(store::Step step) {
  if (step_ == step) return;
  if (!step_) state_ = TransformState::load(*cache_);
  step_ = step;
  cache_->begin_step(step);
  ++state_.steps;
  // Before each step whose number has doubled: then as many steps follow as there were.
  if (!std::has_single_bit(static_cast<std::uint64_t>(state_.steps - 1))) return;
  if (state_.moments.tokens == 0 || state_.generation == kLastGeneration) return;
  // What a value of a row that misses costs more: half a bit, and the bits of the smaller error.
  const double more = 0.5 + std::max(0, options_.first_bits - options_.bits);
  const double misses = more * static_cast<double>(cache_->bytes()) / sizeof(std::int16_t);
  auto better =
      better_basis(state_.moments, *state_.basis, squared(relative_error(options_.bits)), misses);
  if (better) state_.begin_generation(*std::move(better));
}

// Entries need a unit from the first message on.
void TransformEncoder::begin_basis(const at::Tensor& values) {
  BasisPart first = first_basis(values.size(1));
  const double step =
      step_for(values, squared(relative_error(options_.first_bits)) * energy_of(values));
  const auto largest = values.abs().max().item<double>();
  first.unit = static_cast<float>(std::max({step * kUnitOfStep, 4 * largest / kMostEntry, 1e-30}));
  state_.begin_generation(std::move(first));
}

// The rows of the message and their entries; zeros for a row without one.
void TransformEncoder::find_entries(const TensorHeader& header) {
  message_ = {};
  lengths_.clear();
  entries_ = at::zeros({header.rows.tokens(), header.width});
  std::int64_t at = 0;
  for (const Row& row : header.rows.rows) {
    lengths_.push_back(row.length());
    TransformRow& found = message_.rows.emplace_back();
    if (is_gradient() || row.length() == 0) continue;
    found.base = RowBase::fresh;
    const std::span<const std::byte> entry = cache_->find(row.sample);
    at::Tensor values = entries_.narrow(0, at, row.length());
    at += row.length();
    if (entry.size() != static_cast<std::size_t>(2 * values.numel())) continue;
    const std::uint64_t mark = cache_->checksum(row.sample);
    if (static_cast<std::uint8_t>(mark) != state_.generation) continue;
    if (entry_mark(entry, state_.generation) != mark) {
      ++traffic_.resends;
      continue;
    }
    found = {RowBase::entry, mark};
    at::Tensor whole = at::empty(values.sizes(), at::kShort);
    std::memcpy(whole.mutable_data_ptr(), entry.data(), entry.size());
    values.copy_(whole);
  }
}

// The energy that the errors of all rows may have together.
double TransformEncoder::wanted_energy(const at::Tensor& values, const at::Tensor& changes) const {
  const double of_changes = squared(relative_error(options_.bits));
  if (is_gradient()) return of_changes * energy_of(values);
  // A row that hardly changed may err as much as a first visit, and then nothing of it is sent: the
  // levels of its change are zeros, which take almost no bits.
  const double of_values = squared(relative_error(options_.first_bits));
  double wanted = 0;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < lengths_.size(); at += lengths_[i++]) {
    if (lengths_[i] == 0) continue;
    const at::Tensor energies = values.narrow(0, at, lengths_[i]).square().sum(1);
    // A few tokens hold most energy of some models. The harmonic mean lets the error follow the
    // usual token, so that an outlier does not hide the others.
    const at::Tensor bounded = energies.clamp_min(1e-4 * energies.mean().item<double>() + 1e-30);
    const double usual = 1 / bounded.reciprocal().mean().item<double>();
    double row = of_values * usual * static_cast<double>(lengths_[i]);
    if (message_.rows[i].base == RowBase::entry) {
      row = std::max(row, of_changes * energy_of(changes.narrow(0, at, lengths_[i])));
    }
    wanted += row;
  }
  return wanted;
}

// Levels of all changes, and the entries that they lead to; false: some do not fit.
bool TransformEncoder::round(const TensorHeader& header, const at::Tensor& changes, double wanted) {
  const double unit = state_.basis->part().unit;
  at::Tensor levels;
  if (is_gradient()) {
    // With such random numbers the error does not depend on the values.
    // An error that is uniform in a step has a twelfth of its square as energy.
    const double step = std::sqrt(12 * wanted / static_cast<double>(changes.numel()));
    message_.level_size = static_cast<float>(std::max(step, 1e-30));
    message_.dither =
        kernels::mix_key({options_.key, static_cast<std::uint64_t>(number(header.step)),
                          static_cast<std::uint64_t>(header.micro_batch)});
    levels = (changes / message_.level_size + dither_for(message_.dither, changes)).round();
    error_squares_ = wanted;
  } else {
    const double step = step_for(changes, wanted);
    // Unchanged values want any step.
    double& least = state_.moments.step;
    if (step > 0) least = least > 0 ? std::min(least, step) : step;
    const auto units = std::clamp<std::int64_t>(std::llround(step / unit), 1, kMostLevelUnits);
    message_.level_units = static_cast<std::uint32_t>(units);
    levels = (changes / (unit * static_cast<double>(units))).round();
    const at::Tensor moved = levels * units;
    error_squares_ = energy_of(changes - moved * unit);
    // The unit is too coarse since the values are much smaller than they were.
    if (error_squares_ > 2 * wanted && units == 1) return false;
    entries_ = entries_ + moved;
    if (!(entries_.abs().max().item<double>() <= kMostEntry)) return false;
  }
  const at::Tensor sizes = levels.abs();
  if (!(sizes.max().item<double>() <= coding::LevelModels::kMost)) return false;
  message_.loudness = loudness_of(sizes.sum().item<double>(), levels.size(0), state_.basis->part());
  const at::Tensor whole = levels.to(at::kInt).contiguous();
  const auto* from = whole.const_data_ptr<std::int32_t>();
  message_.levels.assign(from, from + whole.numel());
  return true;
}

// In the order of the rows, as the other end does it.
void TransformEncoder::keep_entries(const TensorHeader& header) {
  const at::Tensor whole = entries_.to(at::kShort).contiguous();
  const auto* from = whole.const_data_ptr<std::int16_t>();
  for (std::size_t i = 0; i < lengths_.size(); from += lengths_[i++] * header.width) {
    TransformRow& row = message_.rows[i];
    if (row.base == RowBase::none) continue;
    const store::SampleId sample = header.rows.rows[i].sample;
    const std::span<std::byte> entry =
        row.base == RowBase::fresh ? cache_->keep(sample, lengths_[i]) : cache_->find(sample);
    if (entry.empty()) {
      row.base = RowBase::none;
      continue;
    }
    std::memcpy(entry.data(), from, entry.size());
    cache_->set_checksum(sample, entry_mark(entry, state_.generation));
    ++(row.base == RowBase::fresh ? traffic_.cache_misses : traffic_.hits);
  }
}

bool TransformEncoder::encode_transformed(const TensorHeader& header, const at::Tensor& tensor,
                                          net::Frame& frame) {
  const at::Tensor values = tokens_of(header, tensor);
  const bool finite = values.numel() > 0 && std::isfinite(values.abs().sum().item<float>());
  if (finite && state_.generation == 0) begin_basis(values);
  // Also where groups follow: both ends see the same uses of entries.
  find_entries(header);
  if (!finite) return false;
  message_.generation = state_.generation;
  const at::Tensor coordinates = state_.basis->project(values);
  const at::Tensor changes = coordinates - entries_ * state_.basis->part().unit;
  const double wanted = wanted_energy(values, changes);
  if (!std::isfinite(wanted)) return false;
  learn(state_.moments, changes, coordinates);
  if (!round(header, changes, wanted)) return false;
  net::Frame levels;
  write_levels(message_, state_.basis->part(), levels);
  // Never more bytes than groups take.
  if (levels.size() + most_head_bytes(header) >= bytes_in_groups(header)) return false;
  if (!is_gradient()) keep_entries(header);
  if (!state_.sent) message_.basis = state_.basis->part();
  state_.sent = true;
  write_transform_head(header.kind, message_, frame);
  append_bytes(frame, levels);
  count(changes, values);
  return true;
}

std::size_t TransformEncoder::bytes_in_groups(const TensorHeader& header) const {
  const int bits = is_gradient() ? options_.bits : options_.first_bits;
  const RowHeader row = row_header(RowBase::none, bits, options_.direction);
  std::size_t bytes = kPayloadHeaderBytes;
  for (const std::int64_t tokens : lengths_) {
    bytes += row_header_bytes(row.base) + data_bytes(row, options_.group, tokens, header.width);
  }
  return bytes;
}

void TransformEncoder::count(const at::Tensor& changes, const at::Tensor& values) {
  traffic_.value_squares += energy_of(values);
  traffic_.error_squares += error_squares_;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < lengths_.size(); at += lengths_[i++]) {
    if (message_.rows[i].base != RowBase::entry) continue;
    traffic_.change_squares += energy_of(changes.narrow(0, at, lengths_[i]));
    traffic_.changed_value_squares += energy_of(values.narrow(0, at, lengths_[i]));
  }
}

void TransformEncoder::encode(const TensorHeader& header, const at::Tensor& tensor,
                              net::Frame& frame) {
  if (header.evaluation || tensor.dim() != 3 || tensor.size(0) != header.rows.size() ||
      tensor.size(2) != header.width || header.width != cache_->options().width) {
    throw std::logic_error(fmt::format("a tensor of {} dimensions for {} rows of width {} of {}",
                                       tensor.dim(), header.rows.size(), header.width,
                                       cache_->options().width));
  }
  begin_step(header.step);
  const std::size_t begin = frame.size();
  const bool transformed = encode_transformed(header, tensor, frame);
  state_.save_to(*cache_);
  if (!transformed) return groups_.encode(header, tensor, frame);
  ++traffic_.messages;
  traffic_.rows += static_cast<std::uint64_t>(header.rows.size());
  traffic_.raw_bytes += header.raw_bytes();
  traffic_.payload_bytes += frame.size() - begin;
}

void TransformEncoder::encode_whole(const TensorHeader& header, net::Frame& frame) {
  const std::size_t begin = frame.size();
  for (const Row& row : header.rows.rows) {
    const auto needed = static_cast<std::size_t>(kernels::entry_bytes(row.length(), header.width));
    const std::span<const std::byte> entry =
        step_ == header.step ? cache_->find(row.sample) : std::span<const std::byte>{};
    if (needed == 0 || entry.size() != needed ||
        entry_mark(entry, state_.generation) != cache_->checksum(row.sample)) {
      throw CodecError(fmt::format(
          "a peer asks for {} tokens of sample {} of step {} again, which this end does not hold",
          row.length(), number(row.sample), number(header.step)));
    }
    append_bytes(frame, entry);
  }
  traffic_.resends += static_cast<std::uint64_t>(header.rows.size());
  traffic_.payload_bytes += frame.size() - begin;
}

Traffic TransformEncoder::traffic() const {
  return total_traffic(traffic_, groups_.traffic(), *cache_);
}

Traffic total_traffic(Traffic own, const Traffic& groups, const ActivationCache& cache) {
  const auto add = [&](auto member) { own.*member += groups.*member; };
  std::apply([&](auto... members) { (add(members), ...); }, kTrafficSums);
  own.evictions = cache.evictions();
  own.cache_bytes = cache.bytes();
  return own;
}

}  // namespace strait::codec
