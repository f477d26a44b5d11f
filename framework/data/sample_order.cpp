#include "framework/data/sample_order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "framework/mixed_bits.h"
#include "framework/store/store_error.h"

namespace strait::data {
namespace {

// Draws `count` of the rows 0 .. rows - 1, and returns them in order.
std::vector<std::int64_t> drawn_rows(std::int64_t rows, std::int64_t count, std::uint64_t key) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  const auto rank = [key](std::int64_t row) {
    return mixed_bits(key + static_cast<std::uint64_t>(row));  // a bijection, so no two are equal
  };
  std::ranges::nth_element(all, all.begin() + count, {}, rank);
  all.resize(static_cast<std::size_t>(count));
  std::ranges::sort(all);
  return all;
}

// A Feistel network on `bits` bits: a keyed permutation of 0 .. 2^bits - 1 that computes any
// position by itself.
std::uint64_t feistel(std::uint64_t key, unsigned bits, std::uint64_t value) {
  constexpr unsigned kRounds = 8;
  const unsigned right_bits = bits / 2;
  const std::uint64_t right_mask = (std::uint64_t{1} << right_bits) - 1;
  const std::uint64_t left_mask = (std::uint64_t{1} << (bits - right_bits)) - 1;
  std::uint64_t left = value >> right_bits;
  std::uint64_t right = value & right_mask;
  for (unsigned round = 0; round < kRounds; ++round) {
    const std::uint64_t round_key = mixed_bits(key + round);
    if (round % 2 == 0) {
      left ^= mixed_bits(round_key ^ right) & left_mask;
    } else {
      right ^= mixed_bits(round_key ^ left) & right_mask;
    }
  }
  return left << right_bits | right;
}

// The rows of a stretch that each replica owns, in proportion to `shares` and as evenly spread as
// they can be: an epoch that ends inside a stretch gives each its share but for about a row. Equal
// shares: each owns one row, in the order of the replicas.
std::vector<std::vector<std::int64_t>> shared_out(const std::vector<std::int64_t>& shares) {
  struct Turn {
    std::int64_t number;
    std::size_t replica;
  };
  std::vector<Turn> turns;
  for (std::size_t replica = 0; replica < shares.size(); ++replica) {
    for (std::int64_t number = 0; number < shares[replica]; ++number) {
      turns.push_back({number, replica});
    }
  }
  // The turns of a replica are the middles of equal parts of the stretch.
  std::ranges::stable_sort(turns, [&](const Turn& a, const Turn& b) {
    return (2 * a.number + 1) * shares[b.replica] < (2 * b.number + 1) * shares[a.replica];
  });
  std::vector<std::vector<std::int64_t>> owned(shares.size());
  for (std::size_t row = 0; row < turns.size(); ++row) {
    owned[turns[row].replica].push_back(static_cast<std::int64_t>(row));
  }
  return owned;
}

}  // namespace

std::string paths_of(const std::vector<DataFile>& files) {
  std::string text;
  for (const DataFile& file : files) text += (text.empty() ? "" : ", ") + file.path;
  return text;
}

std::vector<RowChoice> mix_rows(std::span<const MixedFile> files, std::uint64_t seed) {
  std::vector<RowChoice> chosen;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto [rows, weight] = files[i];
    const auto file = static_cast<std::int32_t>(i);
    const auto copies = static_cast<std::int64_t>(std::floor(weight));
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      for (std::int64_t row = 0; row < rows; ++row) chosen.push_back({file, row});
    }
    const double rest = weight - static_cast<double>(copies);
    const std::int64_t count = std::llround(rest * static_cast<double>(rows));
    const std::uint64_t key = mixed_bits(mixed_bits(seed) + i);
    for (const std::int64_t row : drawn_rows(rows, count, key)) chosen.push_back({file, row});
  }
  return chosen;
}

SampleOrder::SampleOrder(SampleOrderOptions options) : options_(std::move(options)) {
  std::vector<std::int64_t>& rows = options_.rows_by_replica;
  if (options_.replicas < 1 || options_.replica < 0 || options_.replica >= options_.replicas ||
      options_.rows_per_step < 1 || std::ranges::any_of(rows, [](auto one) { return one < 1; }) ||
      (!rows.empty() && std::ssize(rows) != options_.replicas)) {
    throw std::invalid_argument(fmt::format("replica {} of {}, {} rows per step", options_.replica,
                                            options_.replicas, options_.rows_per_step));
  }
  const auto replica = static_cast<std::size_t>(options_.replica);
  if (rows.empty()) {
    rows.assign(static_cast<std::size_t>(options_.replicas), options_.rows_per_step);
  }
  options_.rows_per_step = rows[replica];
  const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  // Then no shard is too small either, and all replicas give the same answer.
  if (all > options_.rows) {
    throw store::StoreError(store::StoreError::Kind::bad_input,
                            "a step takes {} rows, but the data has only {} ({} replicas); make "
                            "the batch smaller or the rows shorter",
                            all, options_.rows, options_.replicas);
  }
  std::int64_t unit = 0;
  for (const std::int64_t one : rows) unit = std::gcd(unit, one);
  std::vector<std::int64_t> shares = rows;
  for (std::int64_t& share : shares) share /= unit;
  owned_ = shared_out(shares);
  stretch_ = all / unit;
  shard_rows_ = shard_rows(replica);
}

std::int64_t SampleOrder::shard_rows(std::size_t replica) const {
  const std::vector<std::int64_t>& owned = owned_[replica];
  const auto rest = std::ranges::lower_bound(owned, options_.rows % stretch_) - owned.begin();
  return options_.rows / stretch_ * std::ssize(owned) + rest;
}

std::vector<store::SampleId> SampleOrder::samples(store::Step step) const {
  if (number(step) < 0) throw std::out_of_range(fmt::format("step {}", number(step)));
  const std::int64_t start = number(step) * options_.rows_per_step;
  const std::int64_t epoch = start / shard_rows_;
  const std::int64_t place = start % shard_rows_;
  const std::int64_t here = std::min(options_.rows_per_step, shard_rows_ - place);

  // A front is at most as long as a step, so most steps need none.
  const Places places = place < options_.rows_per_step ? front(epoch) : Places{};
  Places rows = slice(epoch, places, place, here);
  if (here < options_.rows_per_step) {
    const Places next = front(epoch + 1);
    rows.insert(rows.end(), next.begin(), next.begin() + (options_.rows_per_step - here));
  }
  std::vector<store::SampleId> samples;
  samples.reserve(rows.size());
  const std::vector<std::int64_t>& owned = owned_[static_cast<std::size_t>(options_.replica)];
  for (const std::int64_t row : rows) {
    const std::int64_t stretch = row / std::ssize(owned);
    const auto number = static_cast<std::size_t>(row % std::ssize(owned));
    samples.push_back(store::SampleId{stretch * stretch_ + owned[number]});
  }
  return samples;
}

std::int64_t SampleOrder::epoch_steps(std::int64_t epochs) const {
  std::int64_t most = 0;
  for (std::size_t replica = 0; replica < owned_.size(); ++replica) {
    const std::int64_t rows = options_.rows_by_replica[replica];
    most = std::max(most, (epochs * shard_rows(replica) + rows - 1) / rows);
  }
  return most;
}

// The permutation of an epoch before samples are moved.
std::int64_t SampleOrder::shuffled(std::int64_t epoch, std::int64_t place) const {
  if (!options_.shuffle) return place;
  const auto rows = static_cast<std::uint64_t>(shard_rows_);
  // With fewer than 4 bits a Feistel network mixes nothing.
  const unsigned bits = std::max(4U, static_cast<unsigned>(std::bit_width(rows - 1)));
  const std::uint64_t key =
      mixed_bits(mixed_bits(mixed_bits(options_.seed) + static_cast<std::uint64_t>(epoch)) +
                 static_cast<std::uint64_t>(options_.replica));
  auto value = static_cast<std::uint64_t>(place);
  do {  // walk the cycle until it is back in range: still a permutation
    value = feistel(key, bits, value);
  } while (value >= rows);
  return static_cast<std::int64_t>(value);
}

// How many samples of the step that spans into this epoch belong to the previous epoch.
std::int64_t SampleOrder::carried(std::int64_t epoch) const {
  return epoch * shard_rows_ % options_.rows_per_step;
}

// The first positions of an epoch, as far as they differ from its permutation.
SampleOrder::Places SampleOrder::front(std::int64_t epoch) const {
  // The moved samples depend on the tail of the previous epoch. That tail depends on its own front
  // if the epoch is shorter than two steps. So start at an epoch whose predecessor has an unchanged
  // tail.
  std::int64_t first = epoch;
  while (carried(first) > 0 && shard_rows_ - carried(first) < options_.rows_per_step) --first;
  Places places;
  for (std::int64_t at = first; at <= epoch; ++at) {
    const std::int64_t count = carried(at);
    places =
        count == 0 ? Places{} : front_after(at, slice(at - 1, places, shard_rows_ - count, count));
  }
  return places;
}

SampleOrder::Places SampleOrder::front_after(std::int64_t epoch, const Places& tail) const {
  Places taken = tail;
  std::sort(taken.begin(), taken.end());
  const std::size_t wanted = static_cast<std::size_t>(options_.rows_per_step) - tail.size();
  Places places;
  Places moved;
  for (std::int64_t place = 0; places.size() < wanted; ++place) {
    const std::int64_t row = shuffled(epoch, place);
    const bool held = std::binary_search(taken.begin(), taken.end(), row);
    (held ? moved : places).push_back(row);
  }
  places.insert(places.end(), moved.begin(), moved.end());
  return places;
}

SampleOrder::Places SampleOrder::slice(std::int64_t epoch, const Places& front, std::int64_t from,
                                       std::int64_t count) const {
  Places rows;
  rows.reserve(static_cast<std::size_t>(count));
  for (std::int64_t place = from; place < from + count; ++place) {
    const auto index = static_cast<std::size_t>(place);
    rows.push_back(index < front.size() ? front[index] : shuffled(epoch, place));
  }
  return rows;
}

}  // namespace strait::data
