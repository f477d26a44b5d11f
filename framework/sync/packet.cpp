#include "framework/sync/packet.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "framework/sync/block_pattern.h"
#include "framework/sync/packet_symbols.h"
#include "framework/sync/plain_bits.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr auto kBlockValues = static_cast<std::size_t>(kGrain);

// Of a dense piece's blocks.
float dense_step(std::span<const Block> blocks, std::span<const float> values, int bits) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    count += blocks[b].count;
    for (std::size_t i = 0; i < kBlockValues; ++i) {
      sum += static_cast<double>(std::abs(values[b * kBlockValues + i]));
    }
  }
  const double mean = sum / static_cast<double>(count);
  if (mean < static_cast<double>(kLeastMagnitude)) return 0;
  return step_of(step_code(step_around_zero(mean, bits)));
}

// Takes what is not zero.
std::uint16_t pick_dense(std::span<const float> values, float threshold,
                         std::vector<float>& picked) {
  std::uint32_t pattern = 0;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    if (std::abs(values[i]) < threshold) continue;
    pattern |= 1U << i;
    picked.push_back(values[i]);
  }
  return static_cast<std::uint16_t>(pattern);
}

// Patterns and values of all that is sent, and of runs the grids and which values are theirs.
void pick(std::span<const Block> blocks, std::span<const float> values, int bits,
          Survivors& survivors, std::vector<PacketRun>& runs, SparseValues& sent) {
  if (runs.size() == 1 && !runs[0].dense) {
    std::swap(sent.patterns, survivors.patterns);
    std::swap(sent.values, survivors.values);
    sent.patterns.resize(blocks.size());
    runs[0].values = sent.values.size();
    return;
  }
  sent.patterns.assign(blocks.size(), 0);
  sent.values.clear();
  auto next_pattern = survivors.patterns.begin();
  auto next_value = survivors.values.begin();
  for (PacketRun& run : runs) {
    run.first_value = sent.values.size();
    const auto patterns = blocks_within(std::span(sent.patterns), run);
    if (run.dense) {
      const auto its = values.subspan(run.first * kBlockValues, run.count * kBlockValues);
      run.grid = grid_around_zero(dense_step(blocks_within(blocks, run), its, bits), bits);
      for (std::size_t b = 0; b < run.count && !run.silent(); ++b) {
        patterns[b] = pick_dense(its.subspan(b * kBlockValues, kBlockValues), run.grid.threshold,
                                 sent.values);
      }
    } else if (!run.silent()) {
      std::size_t count = 0;
      for (std::uint16_t& pattern : patterns) {
        pattern = *next_pattern++;
        count += values_in(pattern);
      }
      const auto end = next_value + static_cast<std::ptrdiff_t>(count);
      sent.values.insert(sent.values.end(), next_value, end);
      next_value = end;
    }
    run.values = sent.values.size() - run.first_value;
  }
}

// Their levels; the values become what is read.
void quantise(const Grid& all, std::span<float> values, std::span<std::int32_t> levels) {
  const Grid grid = all;  // nobody else's, so that it need not be read again for each value
  if (grid.step == 0 || grid.most_level == 0) {
    const float said = grid.value(0);
    for (float& value : values) value = std::copysign(said, value);
    std::ranges::fill(levels, 0);
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) levels[i] = grid.level(std::abs(values[i]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::copysign(grid.value(levels[i]), values[i]);
  }
}

std::uint32_t sign_of(float value) { return std::bit_cast<std::uint32_t>(value) >> 31U; }

void put_plain(std::span<const std::int32_t> levels, std::span<const float> values, unsigned bits,
               std::vector<std::byte>& plain) {
  PlainBitsWriter writer(plain, bits * values.size());
  std::size_t i = 0;
  // Signs alone by many at a time.
  constexpr std::size_t kMany = 32;
  for (; bits == 1 && i + kMany <= values.size(); i += kMany) {
    std::uint32_t signs = 0;
    for (std::size_t j = 0; j < kMany; ++j) signs |= sign_of(values[i + j]) << j;
    writer.put(signs, kMany);
  }
  const std::uint32_t mask = (1U << bits) - 1;
  for (; i < values.size(); ++i) {
    writer.put((static_cast<std::uint32_t>(levels[i]) << 1U | sign_of(values[i])) & mask, bits);
  }
  writer.finish();
}

// Signs and the low bits of levels; false: there are others behind them.
bool take_plain(std::span<const std::byte> plain, unsigned bits, std::span<std::int32_t> levels,
                std::span<float> values) {
  PlainBitsReader reader(plain);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::uint32_t word = reader.take(bits);
    levels[i] |= static_cast<std::int32_t>(word >> 1U);
    values[i] = std::bit_cast<float>(word << 31U);
  }
  return reader.ends_in_zeros();
}

}  // namespace

void write_packet(std::span<const Block> blocks, std::span<const float> values,
                  const PacketSettings& settings, PacketRoom& room, net::Frame& out,
                  SparseValues& sent) {
  sent.patterns.clear();
  sent.values.clear();
  if (blocks.empty()) return;
  Survivors& survivors = room.survivors;
  find_survivors(blocks, values, settings.top, survivors);
  const PacketHead head =
      PacketHead::of(settings.bits, survivors.share, survivors.least, survivors.mean);
  append_packet_head(head, out);
  std::vector<PacketRun> runs = packet_runs(blocks, head.grid());
  pick(blocks, values, head.bits, survivors, runs, sent);
  room.levels.resize(sent.values.size());
  for (const PacketRun& run : runs) {
    quantise(run.grid, values_within(std::span(sent.values), run),
             values_within(std::span(room.levels), run));
  }
  put_symbols(head, runs, sent.patterns, room.levels, room.writer);
  put_plain(room.levels, sent.values, head.plain_bits(), room.plain);
  room.writer.finish(room.plain, out);
}

void read_packet(std::span<const Block> blocks, std::span<const std::byte> bytes, PacketRoom& room,
                 SparseValues& sent) {
  sent.patterns.assign(blocks.size(), 0);
  sent.values.clear();
  if (blocks.empty() && bytes.empty()) return;
  const PacketHead head = read_packet_head(bytes);
  std::vector<PacketRun> runs = packet_runs(blocks, head.grid());
  LaneReader reader(bytes.subspan(kPacketHeadBytes));
  std::vector<std::int32_t>& levels = room.levels;
  take_symbols(head, blocks, reader, runs, sent.patterns, levels);
  const std::size_t bits = head.plain_bits() * levels.size();
  sent.values.resize(levels.size());
  if (!reader.finish((bits + 7) / 8, room.plain) ||
      !take_plain(room.plain, head.plain_bits(), levels, sent.values)) {
    throw SyncError(SyncError::Kind::corrupt, "a packet does not end where its values do");
  }
  for (const PacketRun& run : runs) {
    for (std::size_t i = run.first_value; i < run.first_value + run.values; ++i) {
      sent.values[i] = std::copysign(run.grid.value(levels[i]), sent.values[i]);
    }
  }
}

void add_to(std::span<float> values, const SparseValues& sent) {
  const float* next = sent.values.data();
  for (std::size_t b = 0; b < sent.patterns.size(); ++b) {
    float* block = values.data() + b * kBlockValues;
    if (sent.patterns[b] == kWholePattern) {
      for (std::size_t i = 0; i < kBlockValues; ++i) block[i] += next[i];
      next += kBlockValues;
      continue;
    }
    for (std::uint32_t rest = sent.patterns[b]; rest != 0; rest &= rest - 1) {
      block[std::countr_zero(rest)] += *next++;
    }
  }
}

}  // namespace strait::sync
